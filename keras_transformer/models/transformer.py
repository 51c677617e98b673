"""The Transformer as a functional Keras model, whole or one step at a time."""

import dataclasses

import keras
from keras import ops

from ..config import TransformerConfig
from ..layers import Decoder, Encoder, PositionalEmbedding
from ..masks import ancestor_mask, padding_mask
from ..shapes import reshape


@keras.saving.register_keras_serializable("keras_transformer")
class Transformer(keras.Model):
    """A functional model from `{"source": …, "target": …}` token ids to float32 logits (Figure 1 of the paper).

    Args:
        config: a `TransformerConfig`, or its fields as a dict.

    Call arguments:
        source: int (batch, source length), each row ends with the end token; 0 is padding.
        target: int (batch, target length), the translation shifted right: it begins with the start token.

    Returns:
        float32 logits (batch, target length, target_vocab_size).

    For translation the call is taken apart: `init_state` encodes a source, `decode_step` decodes one more token.

    Example:
        >>> config = TransformerConfig.preset("tiny", source_vocab_size=100, target_vocab_size=100)
        >>> model = build_transformer(config)
        >>> model({"source": np.ones((2, 7), "int32"), "target": np.ones((2, 5), "int32")}).shape
        (2, 5, 100)
    """

    def __init__(self, config, **kwargs):
        if not isinstance(config, TransformerConfig):
            config = TransformerConfig(**config)
        dtype = keras.dtype_policies.get(kwargs.pop("dtype", None) or keras.config.dtype_policy())

        def embedding(vocab_size, name):
            return PositionalEmbedding(
                vocab_size,
                config.d_model,
                positions=config.positions,
                max_length=config.max_length if config.positions == "learned" else None,
                dropout=config.dropout,
                dtype=dtype,
                name=name,
            )

        sizes = dict(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            d_ff=config.d_ff,
            key_dim=config.key_dim,
            value_dim=config.value_dim,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            activation_dropout=config.activation_dropout,
            activation=config.activation,
            norm_first=config.norm_first,
            neighborhood=config.neighborhood,
            dtype=dtype,
        )
        if config.tie_embeddings == "all":
            source_embedding = target_embedding = embedding(config.target_vocab_size, "embedding")
        else:
            source_embedding = embedding(config.source_vocab_size, "source_embedding")
            target_embedding = embedding(config.target_vocab_size, "target_embedding")
        encoder = Encoder(**sizes, name="encoder")
        decoder = Decoder(**sizes, name="decoder")
        output_dense = None
        if config.tie_embeddings == "none":
            output_dense = keras.layers.Dense(
                config.target_vocab_size, use_bias=False, dtype=dtype, name="logits"
            )

        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        parts = source_embedding, target_embedding, encoder, decoder
        decoded = _decode(*parts, source, target)
        if output_dense is None:
            logits = target_embedding(decoded, reverse=True)
        else:
            logits = ops.cast(output_dense(decoded), "float32")
        super().__init__({"source": source, "target": target}, logits, **kwargs)
        self.config = config
        self.source_embedding = source_embedding
        self.target_embedding = target_embedding
        self.encoder = encoder
        self.decoder = decoder
        self.output_dense = output_dense

    def hidden_states(self, inputs, training=None):
        """What the output projection of a call takes: (batch, target length, d_model)."""
        parts = self.source_embedding, self.target_embedding, self.encoder, self.decoder
        return _decode(*parts, inputs["source"], inputs["target"], training)

    @property
    def output_table(self):
        """The output projection, (target_vocab_size, d_model): `hidden_states` times its transpose are the logits."""
        if self.output_dense is None:
            return ops.convert_to_tensor(self.target_embedding.token_table)
        return ops.transpose(self.output_dense.kernel)

    def output_kernel(self):
        """The output projection as the steps of a search take it: (d_model, target_vocab_size).

        With a table that lies the other way, a product of few rows takes up to half as long again. None where the
        projection has its own kernel, which lies this way.
        """
        if self.output_dense is not None:
            return None
        table = ops.cast(self.target_embedding.token_table, self.target_embedding.compute_dtype)
        return ops.transpose(table)

    def init_state(self, source, beam_size, max_length):
        """Encodes a source and prepares `decode_step`.

        Args:
            source: int (batch, source length).
            beam_size: int, hypotheses that live at once; 1 for greedy search.
            max_length: int or int scalar, for how many tokens there is room; 0 where every step makes its own.

        Returns:
            A nest of tensors.
        """
        batch_size = ops.shape(source)[0]
        source_mask = padding_mask(source)
        encoded = self.encoder(self.source_embedding(source), mask=source_mask)
        return {
            "ancestors": ops.zeros((batch_size, beam_size, max_length), dtype="int32"),
            "caches": self.decoder.init_cache(batch_size, max_length * beam_size),
            "source_caches": self.decoder.project_source(encoded),
            "source_mask": source_mask,
        }

    def decode_step(self, token_ids, parents, position, state, grow=False, output_kernel=None):
        """Decodes one more token of every hypothesis: the step function of `keras_transformer.decoding`.

        Nothing is copied when hypotheses are reordered: a cache keeps the entries of all of them, and each
        hypothesis attends to its own ancestors.

        Args:
            token_ids: int (batch, beam_size), each hypothesis' newest token.
            parents: int (batch, beam_size), which hypothesis of the step before each one continues.
            position: int scalar, the position of `token_ids`.
            state: from `init_state` or the step before.
            grow: whether the state gets room for these tokens, where shapes may change from step to step; it never
                holds more than there is then.
            output_kernel: `output_kernel()`, made once for all steps; None makes it for this one.

        Returns:
            float32 logits (batch, beam_size, target_vocab_size) and the state.
        """
        batch_size, beam_size, max_length = ops.shape(state["ancestors"])
        rows = ops.arange(batch_size, dtype="int32")[:, None] * beam_size + parents
        ancestors = ops.reshape(state["ancestors"], (batch_size * beam_size, max_length))
        ancestors = ops.take(ancestors, rows, axis=0)
        itself = ops.arange(beam_size, dtype="int32")[None, :, None]
        if grow:
            itself = ops.broadcast_to(itself, (batch_size, beam_size, 1))
            ancestors = ops.concatenate([ancestors, itself], axis=2)
        else:
            is_newest = ops.equal(ops.arange(max_length, dtype="int32"), position)
            ancestors = ops.where(is_newest, itself, ancestors)
        decoded, caches = self.decoder.step(
            self.target_embedding(token_ids, positions=ops.reshape(position, (1, 1))),
            state["caches"],
            None if grow else position * beam_size,
            ancestor_mask(ancestors, position, beam_size, self.config.neighborhood),
            state["source_caches"],
            state["source_mask"],
        )
        if self.output_dense is None:
            kernel = self.output_kernel() if output_kernel is None else output_kernel
            logits = ops.matmul(ops.reshape(decoded, (-1, self.config.d_model)), kernel)
        else:
            logits = self.output_dense(decoded)
        logits = reshape(ops.cast(logits, "float32"), (batch_size, beam_size, self.config.target_vocab_size))
        return logits, {**state, "ancestors": ancestors, "caches": caches}

    def get_config(self):
        return {
            "config": dataclasses.asdict(self.config),
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.encoder.dtype_policy),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def _decode(source_embedding, target_embedding, encoder, decoder, source, target, training=None):
    source_mask, target_mask = padding_mask(source), padding_mask(target)
    encoded = encoder(source_embedding(source, training=training), mask=source_mask, training=training)
    return decoder(
        target_embedding(target, training=training),
        encoded,
        target_mask=target_mask,
        source_mask=source_mask,
        training=training,
    )


def build_transformer(config, dtype=None):
    """The model of a `TransformerConfig`: a functional `keras.Model` from token ids to logits.

    Args:
        config: a `TransformerConfig`.
        dtype: a Keras dtype policy such as "mixed_bfloat16"; the global policy if None.

    Returns:
        A `Transformer`.
    """
    return Transformer(config, dtype=dtype)
