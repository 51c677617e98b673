"""The walk over a model's weights: each of them once, under the name of its layer."""

import pytest

from keras_transformer import TransformerConfig, build_transformer
from keras_transformer.models.transformer import named_weights

SIZES = dict(
    source_vocab_size=7, target_vocab_size=7, num_layers=1, d_model=8, d_ff=12, num_heads=2
)


@pytest.mark.slow
@pytest.mark.parametrize("tie_embeddings", ["all", "target", "none"])
@pytest.mark.parametrize(
    "changes",
    [
        dict(),
        dict(num_encoder_layers=3, norm_first=True, attention_bias=True, logits_bias=True),
        dict(num_decoder_layers=2, positions="learned", logits_bias=True, key_dim=3, value_dim=5),
        dict(
            positions="t5",
            normalization="rms",
            gated=True,
            query_key_norm=True,
            num_key_value_heads=1,
        ),
        dict(
            positions="rotary",
            norm_first=True,
            normalization="rms",
            gated=True,
            feed_forward_bias=False,
        ),
    ],
)
def test_every_weight_has_one_name(tie_embeddings, changes):
    model = build_transformer(TransformerConfig(**SIZES, tie_embeddings=tie_embeddings, **changes))
    names, variables = zip(*named_weights(model))
    assert len(set(names)) == len(names)
    assert sorted(map(id, variables)) == sorted(map(id, model.weights))


def test_named_weights_are_called_after_sublayers_and_shared_ones_after_the_target():
    model = build_transformer(
        TransformerConfig(**SIZES, norm_first=True, logits_bias=True, tie_embeddings="target")
    )
    weights = dict(named_weights(model))
    attention = [f"{part}/kernel" for part in ("query", "key", "value", "output")] + [
        "norm/gamma",
        "norm/beta",
    ]
    feed_forward = [
        f"feed_forward/{name}"
        for name in ("hidden/kernel", "hidden/bias", "output/kernel", "output/bias")
    ]
    feed_forward += ["feed_forward/norm/gamma", "feed_forward/norm/beta"]
    assert set(weights) == {
        *(f"encoder/0/self_attention/{name}" for name in attention),
        *(f"encoder/0/{name}" for name in feed_forward),
        *("encoder/final_norm/gamma", "encoder/final_norm/beta"),
        *(
            f"decoder/0/{kind}/{name}"
            for kind in ("self_attention", "cross_attention")
            for name in attention
        ),
        *(f"decoder/0/{name}" for name in feed_forward),
        *("decoder/final_norm/gamma", "decoder/final_norm/beta"),
        *("target_embedding", "source_embedding", "logits/bias"),
    }
    layer = model.decoder.layers[0]
    for name, variable in {
        "decoder/0/cross_attention/key/kernel": layer.cross_attention.key_dense.kernel,
        "decoder/0/cross_attention/norm/beta": layer.cross_attention_residual.norm.beta,
        "encoder/0/feed_forward/output/kernel": model.encoder.layers[
            0
        ].feed_forward.output_dense.kernel,
        "target_embedding": model.target_embedding.token_table,
    }.items():
        assert weights[name] is variable


def test_named_weights_with_further_options_include_their_weights():
    options = dict(
        positions="t5",
        normalization="rms",
        gated=True,
        query_key_norm=True,
        feed_forward_bias=False,
    )
    model = build_transformer(TransformerConfig(**SIZES, **options))
    weights = dict(named_weights(model))
    layer = model.decoder.layers[0]
    scheme = layer.self_attention.position_scheme
    for name, variable in {
        "decoder/0/self_attention/query_norm/scale": layer.self_attention.query_norm.scale,
        "decoder/0/cross_attention/key_norm/scale": layer.cross_attention.key_norm.scale,
        "decoder/0/self_attention/position_scheme/embeddings": scheme.embeddings,
        "decoder/0/feed_forward/gate/kernel": layer.feed_forward.gate_dense.kernel,
        "decoder/0/feed_forward/norm/scale": layer.feed_forward_residual.norm.scale,
        "target_embedding": model.target_embedding.token_table,
    }.items():
        assert weights[name] is variable
    assert "decoder/0/cross_attention/position_scheme/embeddings" not in weights


def test_build_transformer_with_a_weight_that_num_parameters_forgets_raises(monkeypatch):
    monkeypatch.setattr("keras_transformer.config.model.T5_BUCKETS", 31)
    with pytest.raises(RuntimeError, match="num_parameters must count every weight"):
        build_transformer(TransformerConfig(**SIZES, positions="t5"))
