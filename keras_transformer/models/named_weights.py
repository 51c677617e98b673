"""The weights of a Transformer by name: what models of other programs are read into, and written from."""

from collections.abc import Iterator

import keras

from .transformer import Transformer


def named_weights(model: Transformer) -> Iterator[tuple[str, keras.Variable]]:
    """Yields every weight of a model once, with its name.

    Names are those of the layers, such as "encoder/0/attention/query/kernel", "decoder/5/source_attention/norm/gamma",
    "encoder/1/feed_forward/hidden/bias" and "decoder/final_norm/beta"; then "target_embedding", "source_embedding",
    "logits/kernel" and "logits/bias". With the options that have them, there are "feed_forward/gate/kernel", norms of
    a "scale" alone, and "attention/query_norm/scale", "attention/key_norm/scale" and
    "attention/relative_bias/embeddings". A shared weight has only the first of its names.

    Args:
        model: Transformer.
    """
    for name, layer in _named_layers(model):
        for kind in ("kernel", "bias", "gamma", "beta", "scale", "embeddings"):
            if (variable := getattr(layer, kind, None)) is not None:
                yield f"{name}/{kind}", variable
    embeddings = {"target": model.target_embedding, "source": model.source_embedding}
    if embeddings["source"] is embeddings["target"]:
        del embeddings["source"]
    for side, embedding in embeddings.items():
        yield f"{side}_embedding", embedding.token_table
        if model.config.positions == "learned":
            yield f"{side}_positions", embedding.position_table
    if model.config.tie_embeddings == "none":
        yield "logits/kernel", model.output_projection.kernel
    if model.output_projection.bias is not None:
        yield "logits/bias", model.output_projection.bias


def _named_layers(model: Transformer) -> Iterator[tuple[str, keras.layers.Layer | None]]:
    """Yields every layer with weights, or None instead of a layer that an option would add."""
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for i, layer in enumerate(stack.layers):
            for name in ("attention", "source_attention") if side == "decoder" else ("attention",):
                attention = getattr(layer, name)
                for part in ("query", "key", "value", "output"):
                    yield f"{side}/{i}/{name}/{part}", getattr(attention, f"{part}_dense")
                for part in ("query_norm", "key_norm", "relative_bias"):
                    yield f"{side}/{i}/{name}/{part}", getattr(attention, part, None)
                yield f"{side}/{i}/{name}/norm", getattr(layer, f"{name}_residual").norm
            yield f"{side}/{i}/feed_forward/hidden", layer.feed_forward.hidden_dense
            yield f"{side}/{i}/feed_forward/gate", layer.feed_forward.gate_dense
            yield f"{side}/{i}/feed_forward/output", layer.feed_forward.output_dense
            yield f"{side}/{i}/feed_forward/norm", layer.feed_forward_residual.norm
        if stack.final_norm is not None:
            yield f"{side}/final_norm", stack.final_norm
