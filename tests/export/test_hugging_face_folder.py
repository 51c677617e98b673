"""Folders for Hugging Face, and what `import` reads from them; `tests/pretrained` compares with
PyTorch."""

import dataclasses
import json
import logging

import numpy as np
import numpy_transformer as reference
import pytest
import sentencepiece
from safetensors.numpy import load_file, save_file
from test_pretrained import hugging_face_arrays

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.errors import ConfigError, VerificationError
from keras_transformer.export import hugging_face as exporter
from keras_transformer.export.hugging_face import export_hugging_face
from keras_transformer.export.publishing import Facts
from keras_transformer.model_dir import ModelDir
from keras_transformer.models.transformer import build_transformer, named_weights
from keras_transformer.pretrained import import_model
from keras_transformer.tokenizers import SentencePieceTokenizer, TokenizerPair
from keras_transformer.training.batches.vocabulary import train_tokenizer

PAIRS = generate(300, seed=4)
MODELS = {
    "post-norm": dict(),
    "post-norm, no ties, biases": dict(
        tie_embeddings="none",
        attention_bias=True,
        logits_bias=True,
        activation="silu",
        positions="tensor2tensor",
    ),
    "post-norm, target tied, learned positions": dict(
        tie_embeddings="target", positions="learned", feed_forward_bias=False
    ),
    "pre-norm": dict(norm_first=True, activation="gelu", dropout=0.3),
    "pre-norm, learned positions, biases": dict(
        norm_first=True, positions="learned", attention_bias=True, logits_bias=True
    ),
}


def trained_tokenizer(kind):
    return train_tokenizer([text for pair in PAIRS for text in pair], kind, 350)


@pytest.fixture(scope="module")
def tokenizer():
    return trained_tokenizer("bpe")


def random_translator(tokenizer, decoding=None, **changes):
    sizes = dict(
        num_layers=2,
        num_decoder_layers=1,
        d_model=16,
        d_ff=24,
        num_heads=2,
        max_length=40,
        epsilon=1e-5,
    )
    vocab_sizes = dict(
        source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size
    )
    model = build_transformer(
        TransformerConfig(**{**sizes, **vocab_sizes, **changes}), dtype="float32"
    )
    reference.randomize(model)
    # The seed has made TensorFlow lose the tokenizer.
    return Translator(
        model, SentencePieceTokenizer(tokenizer.file_content), decoding or DecodingConfig()
    )


@pytest.fixture
def unverified(monkeypatch):
    """To export quickly."""
    monkeypatch.setattr(exporter, "_verify", lambda *arguments: None)


QUICK = ("pre-norm, learned positions, biases",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_import_reads_the_same_model(name, tmp_path, unverified):
    changes = MODELS[name]
    tokenizer = trained_tokenizer("bpe" if "positions" in changes else "unigram")
    decoding = DecodingConfig(
        3, 0.0, forbidden_tokens="unknown", no_repeat_ngram_size=4, min_length=3
    )
    translator = random_translator(tokenizer, decoding, **changes)
    folder = export_hugging_face(translator, tmp_path / "out")
    imported = ModelDir(import_model(folder, tmp_path / "model"))
    config = imported.read_config()
    assert (config.model, config.decoding) == (translator.model.config, decoding)
    assert (imported.path / "tokenizer.model").read_bytes() == tokenizer.file_content
    weights = dict(named_weights(Translator.load(imported.path).model))
    for name, variable in named_weights(translator.model):
        np.testing.assert_array_equal(weights.pop(name), variable, err_msg=name)
    assert not weights


def test_a_smaller_epsilon_becomes_theirs(tokenizer, tmp_path, unverified):
    folder = export_hugging_face(random_translator(tokenizer, epsilon=1e-6), tmp_path / "out")
    assert ModelDir(import_model(folder, tmp_path / "model")).read_config().model.epsilon == 1e-5


def test_weights_are_where_the_formulas_of_pytorch_look_for_them(tokenizer, tmp_path, unverified):
    """Independent of `import`: a layer and its input, computed with the names and shapes of the
    file."""
    translator = random_translator(tokenizer, attention_bias=True)
    file = load_file(export_hugging_face(translator, tmp_path) / "model.safetensors")
    ids, d_model = np.array([[5, 9, 7, 3]]), 16
    rates = 10_000 ** (-np.arange(d_model // 2) / (d_model // 2))
    angles = np.arange(4)[:, None] * rates
    stream = file["model.shared.weight"][ids] * 4 + np.concatenate(
        [np.sin(angles), np.cos(angles)], axis=1
    )

    def linear(name, inputs):
        return (
            inputs @ file[f"model.encoder.layers.0.{name}.weight"].T
            + file[f"model.encoder.layers.0.{name}.bias"]
        )

    def norm(name, inputs):
        centered = inputs - inputs.mean(axis=-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        parts = (file[f"model.encoder.layers.0.{name}.{kind}"] for kind in ("weight", "bias"))
        return scaled * next(parts) + next(parts)

    heads = [
        linear(f"self_attn.{part}_proj", stream).reshape(4, 2, 8).swapaxes(0, 1) for part in "qkv"
    ]
    scores = np.exp(heads[0] @ heads[1].swapaxes(1, 2) / np.sqrt(8))
    attended = (
        (scores / scores.sum(axis=-1, keepdims=True) @ heads[2])
        .swapaxes(0, 1)
        .reshape(1, 4, d_model)
    )
    stream = norm("self_attn_layer_norm", stream + linear("self_attn.out_proj", attended))
    stream = norm("final_layer_norm", stream + linear("fc2", np.maximum(linear("fc1", stream), 0)))
    model = translator.model
    ours = np.asarray(model.encoder.layers[0](model.source_embedding(ids)))
    np.testing.assert_allclose(
        stream, np.concatenate([ours[..., ::2], ours[..., 1::2]], axis=-1), atol=1e-4
    )


def test_settings_of_the_search(tokenizer, tmp_path, caplog, unverified):
    decoding = DecodingConfig(
        5, 0.6, forbidden_tokens="special", repetition_penalty=1.5, min_length=4
    )
    with caplog.at_level(logging.WARNING):
        folder = export_hugging_face(random_translator(tokenizer, decoding), tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "Hugging Face divides scores by length ** 0.6, not by ((5 + length) / 6) ** 0.6: some "
        "translations may differ; to avoid this, use --length-penalty 0"
    ]
    assert json.loads((folder / "generation_config.json").read_text()) == {
        **dict(
            num_beams=5,
            length_penalty=0.6,
            early_stopping="never",
            do_sample=False,
            max_new_tokens=40,
        ),
        **dict(bad_words_ids=[[0], [2]], repetition_penalty=1.5, min_new_tokens=3),
        **dict(pad_token_id=0, decoder_start_token_id=2, eos_token_id=3),
    }
    greedy = dataclasses.replace(decoding, beam_size=1)
    caplog.clear()
    folder = export_hugging_face(random_translator(tokenizer, greedy), tmp_path)
    assert not caplog.records and "length_penalty" not in json.loads(
        (folder / "generation_config.json").read_text()
    )


def test_texts_are_compared_without_what_hugging_face_has_not(tmp_path, caplog):
    tokenizer = train_tokenizer(
        [text for pair in PAIRS for text in pair], "bpe", 380, tags=[">>de<<"], terms=True
    )
    decoding = DecodingConfig(
        1, tag=">>de<<", terms={"dog": "Hund"}, placeholders=True, keep=["Zwei"]
    )
    with caplog.at_level(logging.WARNING):
        assert (
            export_hugging_face(random_translator(tokenizer, decoding), tmp_path) == tmp_path / "1"
        )
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == [
        "Hugging Face does not add tags",
        "Hugging Face does not support placeholders",
        "Hugging Face does not support glossaries",
    ]


REFUSED = {
    "model.activation": (dict(activation="tanh"), "swish, silu, relu or gelu for Hugging Face"),
    "model.positions": (
        dict(positions="rotary"),
        "sinusoidal, tensor2tensor or learned for Hugging Face",
    ),
    "model.normalization": (
        dict(normalization="rms"),
        "layer for Hugging Face; received model.normalization='rms'",
    ),
    "model.key_dim": (dict(key_dim=5), "null or 8 for Hugging Face; received model.key_dim=5"),
    "model.value_dim": (
        dict(value_dim=5),
        "null or 8 for Hugging Face; received model.value_dim=5",
    ),
    "model.gated": (dict(gated=True), "false for Hugging Face"),
    "model.epsilon": (
        dict(epsilon=1e-3),
        "at most 1e-05, the epsilon of Hugging Face; received model.epsilon=0.001",
    ),
    "model.tie_embeddings": (
        dict(norm_first=True, tie_embeddings="target"),
        "all for Hugging Face if norm_first=true; received model.tie_embeddings='target'",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_hugging_face_has_not_is_one_line(name, tokenizer, tmp_path):
    changes, message = REFUSED[name]
    with pytest.raises(ConfigError) as error:
        export_hugging_face(random_translator(tokenizer, **changes), tmp_path)
    assert str(error.value).startswith(f"{name} must be {message}") and not list(tmp_path.iterdir())


def test_tokenizers_that_hugging_face_has_not(wordpiece_model_dir, tmp_path):
    with pytest.raises(
        ConfigError, match="tokenizer.kind must be bpe or unigram for Hugging Face; received"
    ):
        export_hugging_face(Translator.load(wordpiece_model_dir), tmp_path)
    tokenizers = [train_tokenizer(lines, "bpe", 273) for lines in (["a b c"], ["c d e"])]
    translator = random_translator(tokenizers[0], tie_embeddings="target")
    separate = Translator(translator.model, TokenizerPair(*tokenizers), translator.decoding)
    with pytest.raises(ConfigError, match="tokenizer.shared must be true for Hugging Face"):
        export_hugging_face(separate, tmp_path)


@pytest.mark.slow
def test_what_was_written_wrongly_does_not_appear(tokenizer, tmp_path, monkeypatch):
    write = exporter._weights

    def wrong(*arguments):
        arrays = write(*arguments)
        return arrays | {
            "model.encoder.layers.0.fc1.weight": -arrays["model.encoder.layers.0.fc1.weight"]
        }

    monkeypatch.setattr(exporter, "_weights", wrong)
    with pytest.raises(
        VerificationError, match="the model that was written computes the log probabilities"
    ):
        export_hugging_face(random_translator(tokenizer), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_command_writes_a_card(tiny_model_dir, tmp_path, capfdbinary):
    arguments = (
        "--model-dir",
        str(tiny_model_dir),
        "--output",
        str(tmp_path / "out"),
        "--format",
        "hugging-face",
    )
    main(
        [
            "export",
            *arguments,
            "--languages",
            "en-de",
            "--license",
            "MIT",
            "--beam-size",
            "2",
            "--length-penalty",
            "0",
        ]
    )
    folder = tmp_path / "out" / "1"
    assert capfdbinary.readouterr().out.decode() == f"{folder}\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["README.md", "config.json", "generation_config.json", "model.safetensors"]
        + ["tokenizer.json", "tokenizer.model", "tokenizer_config.json"]
    )
    card = (folder / "README.md").read_text()
    assert card.startswith(
        '---\nlanguage: ["en", "de"]\nlicense: "mit"\nlibrary_name: "transformers"\n'
    )
    assert "MarianMTModel" in card and '"beam_size": 2' in card
    main(["import", "--from", str(folder), "--model-dir", str(tmp_path / "model")])
    decoding = DecodingConfig(2, 0.0)
    sources = [source for source, _ in PAIRS[:20]]
    assert Translator.load(tmp_path / "model")(sources) == Translator.load(
        tiny_model_dir, decoding
    )(sources)


# Without what `transformers` adds of itself, such as its version.
MARIAN = {
    **dict(
        model_type="marian",
        architectures=["MarianMTModel"],
        activation_function="swish",
        scale_embedding=True,
    ),
    **dict(
        d_model=8,
        encoder_layers=2,
        decoder_layers=1,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        dropout=0.1,
    ),
    **dict(
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        attention_dropout=0.0,
        activation_dropout=0.0,
    ),
    **dict(
        is_encoder_decoder=True,
        max_position_embeddings=64,
        eos_token_id=0,
        use_cache=True,
        dtype="float32",
    ),
    **dict(bos_token_id=None, forced_eos_token_id=None),
}


def save_marian(folder, model_type, is_tied):
    """Random weights in the format of OPUS-MT's models: one vocabulary of the pieces of two
    SentencePiece models."""
    folder.mkdir()
    pieces = set()
    special = [
        dict(bos_id=-1, eos_id=0, unk_id=1),
        dict(bos_id=1, eos_id=2, unk_id=0, user_defined_symbols=["<user>"]),
    ]
    for side, name in enumerate(("source", "target")):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([pair[side] for pair in PAIRS]), model_prefix=str(folder / name), vocab_size=150,
            model_type=model_type, minloglevel=2, hard_vocab_limit=False, **special[side],
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        (folder / f"{name}.vocab").unlink()
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces |= {processor.id_to_piece(i) for i in range(processor.get_piece_size())}
    # Some pieces are rare, and not in the vocabulary.
    ordered = ["</s>", "<unk>", ">>fra<<", *sorted(pieces - {"</s>", "<unk>", "<s>"})[7:], "<pad>"]
    size = len(ordered)
    config = MARIAN | dict(
        vocab_size=size,
        decoder_vocab_size=size,
        pad_token_id=size - 1,
        decoder_start_token_id=size - 1,
    )
    config |= dict(share_encoder_decoder_embeddings=is_tied, tie_word_embeddings=is_tied)
    generation = dict(
        bad_words_ids=[[size - 1]], decoder_start_token_id=size - 1, do_sample=False, eos_token_id=0
    )
    generation |= dict(
        early_stopping="never",
        length_penalty=1.0,
        max_new_tokens=64,
        num_beams=4,
        pad_token_id=size - 1,
    )
    files = {
        "vocab": {piece: i for i, piece in enumerate(ordered)},
        "config": config,
        "generation_config": generation,
    }
    for name, values in files.items():
        values = values if name == "vocab" else dict(sorted(values.items()))
        (folder / f"{name}.json").write_text(json.dumps(values, indent=2))
    save_file(
        hugging_face_arrays(size, 8, 12, depths=(2, 1), is_tied=is_tied),
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "is_tied"), [("unigram", True), ("bpe", False)])
def test_an_imported_model_becomes_the_files_that_it_came_from(model_type, is_tied, tmp_path):
    save_marian(tmp_path / "theirs", model_type, is_tied)
    translator = Translator.load(import_model(tmp_path / "theirs", tmp_path / "model"))
    folder = export_hugging_face(translator, tmp_path / "out", facts=Facts("en-de"))
    for path in (tmp_path / "theirs").iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes(), path.name
    added = {path.name for path in folder.iterdir()} - {
        path.name for path in (tmp_path / "theirs").iterdir()
    }
    assert added == {"README.md", "tokenizer_config.json"}
