"""Several tokens a step: a small network drafts tokens, and one step of the decoder checks all of them.

A draft costs a fraction of a step, since the drafter has no attention: it guesses the decoder's next output from the
last one and from the token that follows. It is trained on the decoder's own outputs (`keras-transformer draft`).
"""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack

import keras
from keras import ops

from ..decoding.blockwise_search import BlockStep
from ..gather import first_maximum, gather_in_rows, take_rows
from ..layers.arguments import LayerArguments, config_of
from ..rules import Size, annotations_of, check_attributes
from ..tensors import Dimension, Shape, Tensor, last_size
from .incremental_decoding import logits_function

if TYPE_CHECKING:
    from .transformer import Transformer


@keras.saving.register_keras_serializable("keras_transformer")
class Drafter(keras.layers.Layer):
    """Guesses a decoder's output at the next position: `h + W2 ReLU(W1 [h; e])`, as EAGLE does (Li et al. 2024).

    Args:
        d_ff: int. Width inside the network.

    Call arguments:
        hidden: (..., d_model), the decoder's outputs at some positions, or the guesses for them.
        embedded: (..., d_model), the embeddings of the tokens at the next positions, without their positions.

    Returns:
        (..., d_model), the guesses for the next positions.

    Example:
        >>> Drafter(d_ff=64)(np.ones((2, 5, 32)), np.ones((2, 5, 32))).shape
        (2, 5, 32)
    """

    def __init__(self, d_ff: Size, **kwargs: Unpack[LayerArguments]) -> None:
        super().__init__(**kwargs)
        self.d_ff = d_ff
        check_attributes(self, Drafter)

    def build(self, hidden_shape: Any, embedded_shape: Shape) -> None:
        d_model = hidden_shape[-1]
        self.inner_dense = keras.layers.Dense(self.d_ff, "relu", dtype=self.dtype_policy, name="inner")
        self.outer_dense = keras.layers.Dense(d_model, dtype=self.dtype_policy, name="outer")
        self.inner_dense.build((*hidden_shape[:-1], 2 * d_model))
        self.outer_dense.build((*hidden_shape[:-1], self.d_ff))

    def call(
        self, hidden: Annotated[Tensor, "(..., d_model)"], embedded: Annotated[Tensor, "(..., d_model)"]
    ) -> Annotated[Tensor, "(..., d_model)"]:
        return hidden + self.outer_dense(self.inner_dense(ops.concatenate([hidden, embedded], axis=-1)))

    def compute_output_shape(self, hidden_shape: Shape, embedded_shape: Shape) -> Shape:
        return hidden_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **config_of(self, annotations_of(Drafter.__init__))}


class BlockState(NamedTuple):
    """What is known between two steps. Every tensor has one row for each sequence.

    Attributes:
        hidden: the decoder's outputs at the tokens of the last block; zeros before the first.
        caches: a `FixedCache` for each layer. What a step writes after the kept tokens, the next step overwrites.
        source: the source's keys and values for each layer, and its mask.
        first_positions: int32 (batch, 1), where in the sequence position 0 of the search is; () without a prefix.
    """

    hidden: Annotated[Tensor, "(batch, block_size, d_model)"]
    caches: Any
    source: Any
    first_positions: Tensor | tuple[()]


def start_block_decoding(
    model: "Transformer",
    drafter: Drafter,
    source: Annotated[Tensor, "int (batch, source length)"],
    block_size: int,
    max_length: Dimension,
    prefix: Annotated[Tensor, "int (batch, prefix length)"] | None = None,
    candidates: Annotated[Tensor, "int32 (number of candidates,)"] | None = None,
) -> tuple[BlockStep[BlockState], BlockState]:
    """Encodes a source and prepares to decode by blocks.

    Args:
        drafter: trained for the model.
        block_size: how many tokens a step computes.
        max_length: the most tokens of any target, without its prefix.

    The other arguments are those of `Transformer.start_decoding`.

    Returns:
        The step function for `blockwise_search`, and the state for its first call.
    """
    embedding, decoder = model.target_embedding, model.decoder
    logits_of = logits_function(model.output_projection, decoder.compute_dtype, candidates)
    encoded, source_mask = model.encode(source)
    batch_size = ops.shape(encoded)[0]
    prefix_length = 0 if prefix is None else ops.shape(prefix)[1] + 1

    def decode(embedded: Tensor, positions: Tensor, position_ids: Tensor, state: BlockState) -> tuple[Tensor, Any]:
        source_key_values, source_mask = state.source
        return decoder.step(
            embedded,
            state.caches,
            positions[:, 0],
            source_key_values=source_key_values,
            source_mask=source_mask,
            position_ids=position_ids,
        )

    def step(
        token_ids: Tensor, num_kept: Tensor, positions: Tensor, state: BlockState
    ) -> tuple[Tensor, Tensor, BlockState]:
        # What is drafted behind the last position is never kept; there may be no embedding for it.
        position_ids = ops.minimum(positions + ops.arange(block_size, dtype="int32"), max_length - 1)
        if not isinstance(state.first_positions, tuple):
            positions = positions + state.first_positions
            position_ids = position_ids + state.first_positions
        hidden = gather_in_rows(state.hidden, num_kept - 1)[:, 0]  # (batch, d_model)
        block, drafts = [token_ids[:, 0]], []
        for _ in range(1, block_size):
            hidden = drafter(hidden, ops.cast(embedding.embed_tokens(block[-1]), hidden.dtype))
            drafts.append(first_maximum(logits_of(hidden)))  # (batch,)
            block.append(drafts[-1] if candidates is None else take_rows(candidates, drafts[-1]))
        embedded = embedding(ops.stack(block, axis=1), position_ids=position_ids)
        outputs, caches = decode(embedded, positions, position_ids, state)
        logits = logits_of(ops.reshape(outputs, (-1, embedding.d_model)))
        logits = ops.reshape(logits, (-1, block_size, last_size(logits)))
        return ops.stack(drafts, axis=1), logits, state._replace(hidden=outputs, caches=caches)

    state = BlockState(
        ops.zeros((batch_size, block_size, embedding.d_model), decoder.compute_dtype),
        decoder.init_cache(batch_size, prefix_length + max_length + block_size),
        (decoder.project_source(encoded), source_mask),
        (),
    )
    if prefix is None:
        return step, state
    # Each prefix begins at place 0. What is computed for the padding after a shorter one is overwritten before any
    # position attends to it.
    num_tokens = ops.sum(ops.cast(prefix >= 0, "int32"), axis=1, keepdims=True)
    places = ops.arange(prefix_length, dtype="int32")[None]
    prefix = ops.pad(ops.maximum(ops.cast(prefix, "int32"), 0), ((0, 0), (0, 1)))
    token_ids = gather_in_rows(prefix, ops.minimum(places + prefix_length - 1 - num_tokens, prefix_length - 1))
    last_place = ops.maximum(num_tokens - 1, 0)
    position_ids = ops.minimum(places, last_place)
    embedded = embedding(token_ids, position_ids=position_ids)
    hidden, caches = decode(embedded, ops.zeros_like(num_tokens), position_ids, state)
    last = gather_in_rows(hidden, last_place)  # (batch, 1, d_model)
    return step, state._replace(hidden=state.hidden + last, caches=caches, first_positions=num_tokens)
