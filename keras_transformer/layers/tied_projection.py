"""The output projection that shares its weights with an embedding (section 3.4 of the paper)."""

from collections.abc import Iterable, Iterator
from typing import Any

import keras
from keras import ops

from ..checks import boolean, require
from ..gather import take_rows
from ..masks import refuse_ragged
from ..tensors import Shape, Tensor, reshape_inferring
from .positional_embedding import PositionalEmbedding


@keras.saving.register_keras_serializable("keras_transformer")
class TiedProjection(keras.layers.Layer):
    """Output projection `h Eᵀ` to logits, with the token table E of an embedding (section 3.4).

    Like `keras.layers.Dense`, the layer has a `kernel` (d_model, vocab_size) and a `bias` or None.
    The kernel is the transposed token table, so the bias is the only weight of the layer itself.

    Args:
        embedding: PositionalEmbedding or `keras.layers.Embedding`. The layer that provides the
            token table.
        use_bias: bool. Whether to add a bias to the logits; the paper has none. Defaults to False.

    Call arguments:
        inputs: (..., d_model).

    Returns:
        (..., vocab_size).

    Raises:
        ValueError: An argument is invalid, the embedding is not built when the projection is
            called, or the inputs and the embedding have different widths.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=8000, d_model=512)
        >>> hidden = embedding(np.array([[5, 7, 2, 0]]))
        >>> TiedProjection(embedding)(hidden).shape
        (1, 4, 8000)
    """

    embedding: PositionalEmbedding | keras.layers.Embedding

    def __init__(
        self,
        embedding: PositionalEmbedding | keras.layers.Embedding,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Do not let Keras track the embedding before `build`: until then, it may be a copy that is
        # replaced by the embedding of the graph.
        object.__setattr__(self, "embedding", embedding)
        self.use_bias = boolean("use_bias", use_bias)
        is_embedding = isinstance(embedding, (PositionalEmbedding, keras.layers.Embedding))
        rule = "a PositionalEmbedding or a keras.layers.Embedding"
        require(is_embedding, "embedding", rule, embedding)
        if isinstance(embedding, PositionalEmbedding):
            self._vocab_size, d_model = embedding.vocab_size, embedding.d_model
        else:
            self._vocab_size, d_model = embedding.input_dim, embedding.output_dim
        self.input_spec = keras.InputSpec(min_ndim=1, axes={-1: d_model})
        self.bias: keras.Variable | None = None
        self.supports_masking = True
        self._may_have_a_copied_embedding = False

    def __call__(self, inputs: Tensor, **kwargs: Any) -> Tensor:
        refuse_ragged("inputs", inputs)
        may_be_copied = self._may_have_a_copied_embedding and not self.built
        if may_be_copied and keras.utils.is_keras_tensor(inputs):
            graph = keras.Function(keras.utils.get_source_inputs(inputs), inputs)
            self._share_embedding_with(graph)
        return super().__call__(inputs, **kwargs)

    def _share_embedding_with(self, graph: keras.Function) -> None:
        # `keras.models.clone_model` and `model_from_json` create each layer separately, so this
        # layer received a copy of the embedding. Find the original by its name, which is unique in
        # the graph, but may occur twice in nested models.
        for layers in (graph.operations, _nested_layers(graph.operations)):
            originals = {id(layer): layer for layer in layers if self._is_the_original(layer)}
            if len(originals) == 1:
                object.__setattr__(self, "embedding", *originals.values())
                break

    def _is_the_original(self, layer: keras.Operation) -> bool:
        return type(layer) is type(self.embedding) and layer.name == self.embedding.name

    def get_build_config(self) -> None:
        """Returns None, so that a copy is built in its first call, when its embedding is known."""

    def build(self, input_shape: Shape) -> None:
        if not self.embedding.built:
            raise ValueError("embedding must be built before the projection is called")
        self.embedding = self.embedding
        if self.use_bias:
            self.bias = self.add_weight(shape=(self._vocab_size,), initializer="zeros", name="bias")

    @property
    def kernel(self) -> Tensor:
        """The transposed token table, (d_model, vocab_size)."""
        return ops.transpose(self._token_table)

    def columns(self, token_ids: Tensor) -> Tensor:
        """Returns the kernel's columns for these tokens, without transposing the whole table."""
        return ops.transpose(take_rows(self._token_table, token_ids))

    @property
    def _token_table(self) -> Tensor:
        if isinstance(self.embedding, PositionalEmbedding):
            return self.embedding.token_table
        if self.embedding.quantization_mode:
            # A quantized table contains integers, whose scales only the layer knows.
            return self.embedding(ops.arange(self._vocab_size, dtype="int32"))
        return self.embedding.embeddings

    def call(self, inputs: Tensor) -> Tensor:
        kernel = ops.cast(self.kernel, self.compute_dtype)
        rows = ops.reshape(ops.cast(inputs, self.compute_dtype), (-1, kernel.shape[0]))
        logits = ops.matmul(rows, kernel)
        if self.use_bias:
            logits = ops.add(logits, self.bias)
        # On PyTorch, Keras computes float64 products in float32.
        logits = ops.cast(logits, self.compute_dtype)
        return reshape_inferring(logits, (*ops.shape(inputs)[:-1], self._vocab_size))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape[:-1], self._vocab_size)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "embedding": keras.saving.serialize_keras_object(self.embedding),
            "use_bias": self.use_bias,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "TiedProjection":
        # Within a saved model, Keras returns the same embedding that the rest of the model uses.
        embedding = keras.saving.deserialize_keras_object(config["embedding"])
        projection = super().from_config({**config, "embedding": embedding})
        projection._may_have_a_copied_embedding = True
        return projection


def _nested_layers(layers: Iterable[keras.Operation]) -> Iterator[keras.Operation]:
    """Yields the layers of nested models, at any depth."""
    for layer in layers:
        inner = layer.layers if isinstance(layer, keras.Model) else []
        yield from inner
        yield from _nested_layers(inner)
