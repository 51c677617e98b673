"""Marian's files: what is read from them, and errors in them. `test_marian.py` compares with Marian
itself."""

import csv
import json
import shutil

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import yaml
from safetensors.numpy import save_file

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.commands.main import main
from keras_transformer.export.ctranslate2 import export_ctranslate2
from keras_transformer.export.hugging_face import export_hugging_face
from keras_transformer.model_dir import ModelDir

PAIRS = generate(600, seed=4)
MARIAN = {
    "type": "transformer",
    "dim-emb": 16,
    "enc-depth": 2,
    "dec-depth": 1,
    "transformer-heads": 2,
    "transformer-dim-ffn": 24,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-guided-alignment-layer": "last",
    "tied-embeddings-all": True,
}


def marian_arrays(options, vocab_size):
    """Random weights under Marian's names."""
    generator = np.random.default_rng(0)
    d_model, d_ff = options["dim-emb"], options["transformer-dim-ffn"]
    shapes = {"decoder_ff_logit_out_b": (1, vocab_size), "Wemb": (vocab_size, d_model)}
    for side, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for layer in (f"{side}_l{i + 1}" for i in range(depth)):
            for attention in ["self", "context"][: 1 if side == "encoder" else 2]:
                for part in "qkvo":
                    shapes[f"{layer}_{attention}_W{part}"] = (d_model, d_model)
                    shapes[f"{layer}_{attention}_b{part}"] = (1, d_model)
                shapes |= {
                    f"{layer}_{attention}_Wo_ln_{kind}": (1, d_model) for kind in ("scale", "bias")
                }
            shapes |= {f"{layer}_ffn_W1": (d_model, d_ff), f"{layer}_ffn_b1": (1, d_ff)}
            shapes |= {f"{layer}_ffn_W2": (d_ff, d_model), f"{layer}_ffn_b2": (1, d_model)}
            shapes |= {f"{layer}_ffn_ffn_ln_{kind}": (1, d_model) for kind in ("scale", "bias")}
    arrays = {
        name: generator.normal(scale=0.3, size=shape).astype("float32")
        for name, shape in shapes.items()
    }
    for name in arrays:
        arrays[name] += name.endswith("_scale")
    return arrays


def save_marian(path, options, arrays):
    text = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", "int8")
    np.savez(path, **arrays, **{"special:model.yml": text})


@pytest.fixture(scope="module")
def spm_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spm")
    for side, name in enumerate(("source", "target")):
        train_sentencepiece([pair[side] for pair in PAIRS], folder / f"{name}.spm", 200 + 30 * side)
    return folder


def save_vocab_yml(path, pieces):
    path.write_text(
        "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for i, piece in enumerate(pieces))
    )


@pytest.fixture
def marian_folder(spm_files, tmp_path):
    """The format of OPUS-MT models: one vocabulary, two SentencePiece models."""
    folder = tmp_path / "marian"
    shutil.copytree(spm_files, folder)
    pieces = {"</s>": None, "<unk>": None}
    for name in ("source", "target"):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces |= dict.fromkeys(pieces_of(processor))
    save_vocab_yml(folder / "opus.vocab.yml", pieces)
    save_marian(folder / "opus.npz", MARIAN, marian_arrays(MARIAN, len(pieces)))
    (folder / "decoder.yml").write_text(
        "models: [/elsewhere/opus.npz]\nvocabs: [/elsewhere/opus.vocab.yml, "
        "/elsewhere/opus.vocab.yml]\n"
        "beam-size: 5\nnormalize: 1\nword-penalty: 0\n"
    )
    return folder


def import_here(folder, path):
    main(["import", "--from", str(folder), "--model-dir", str(path)])
    return path


def marian_positions(length, d_model):
    rates = np.exp(-np.arange(d_model // 2) * np.log(10_000) / (d_model // 2 - 1))
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("float32")


@pytest.mark.slow
def test_ctranslate2_reads_the_same_model_from_marian_s_file(marian_folder, tmp_path):
    path = import_here(marian_folder, tmp_path / "model")
    config = ModelDir(path).read_config()
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (5, 1.0)
    assert config.decoding.forbidden_tokens == "unknown" and not config.tokenizer.shared
    assert config.model.tie_embeddings == "all"
    # Its converter has the paper's sinusoids instead of Marian's, unless the file holds positions.
    with np.load(marian_folder / "opus.npz") as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(tmp_path / "with-positions.npz", **arrays, Wpos=marian_positions(512, 16))
    vocab = str(marian_folder / "opus.vocab.yml")
    converter = ctranslate2.converters.MarianConverter(
        str(tmp_path / "with-positions.npz"), [vocab, vocab]
    )
    theirs = ctranslate2.Translator(
        converter.convert(str(tmp_path / "theirs")), compute_type="float32"
    )
    translator = Translator.load(path)
    ours = ctranslate2.Translator(
        str(export_ctranslate2(translator, tmp_path / "ours")), compute_type="float32"
    )
    sources, targets = (list(side) for side in zip(*PAIRS[:50]))
    source, target = (
        [tokenizer.pieces(row) for row in tokenizer.tokenize(side).to_list()]
        for tokenizer, side in zip(translator.tokenizers, (sources, targets))
    )
    scores = [
        [sum(result.log_probs) for result in engine.score_batch(source, target)]
        for engine in (theirs, ours)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=2e-3)
    np.testing.assert_allclose(scores[0], translator.score(sources, targets), atol=2e-3)


@pytest.mark.slow
def test_a_model_of_marian_becomes_one_of_hugging_face(marian_folder, tmp_path):
    translator = Translator.load(import_here(marian_folder, tmp_path / "model"))
    folder = export_hugging_face(translator, tmp_path / "out")
    again = Translator.load(import_here(folder, tmp_path / "again"))
    # Hugging Face's class would compute others.
    assert again.model.config.positions == "tensor2tensor"
    for name in ("source.spm", "target.spm"):
        assert (folder / name).read_bytes() == (marian_folder / name).read_bytes()
    sources, targets = (list(side) for side in zip(*PAIRS[:50]))
    np.testing.assert_allclose(
        again.score(sources, targets), translator.score(sources, targets), atol=1e-3
    )


@pytest.mark.slow
def test_an_imported_model_goes_on_learning(marian_folder, tmp_path):
    imported = import_here(marian_folder, tmp_path / "imported")
    text = tmp_path / "text.tsv"
    text.write_text("".join("\t".join(pair) + "\n" for pair in PAIRS[:100]), encoding="utf-8")
    settings = ("training.steps=6", "training.validate_every=1", "training.validate_by=perplexity")
    rate = ("training.warmup_steps=1", "training.peak_learning_rate=0.006")
    main(
        [
            *(
                "train",
                "--config",
                "fine-tune",
                "--init-from",
                str(imported),
                "--model-dir",
                str(tmp_path / "tuned"),
            ),
            *("--pairs", str(text), "--valid-pairs", str(text)),
            *("--set", *settings, *rate, "training.precision=float32"),
        ]
    )
    with open(tmp_path / "tuned" / "log.csv", newline="") as file:
        perplexities = [float(row["val_perplexity"]) for row in csv.DictReader(file)]
    # The rate of the first update is 0: this is the imported model.
    translator = Translator.load(imported)
    source, target = zip(*PAIRS[:100])
    log_prob = (
        translator.score(source, target).sum() / translator.num_tokens(target, "target").sum()
    )
    np.testing.assert_allclose(perplexities[0], np.exp(-log_prob), rtol=1e-4)
    assert perplexities == sorted(perplexities, reverse=True)
    assert perplexities[-1] < 0.8 * perplexities[0]


def change_options(folder, **changes):
    with np.load(folder / "opus.npz") as file:
        arrays = {name: file[name] for name in file.files if not name.startswith("special:")}
    save_marian(folder / "opus.npz", {**MARIAN, **changes}, arrays)


def change_arrays(folder, **changes):
    with np.load(folder / "opus.npz") as file:
        arrays = {name: file[name] for name in file.files} | changes
    np.savez(
        folder / "opus.npz", **{name: array for name, array in arrays.items() if array is not None}
    )


MISTAKES = {
    "nothing": (lambda folder: shutil.rmtree(folder) or folder.mkdir(), "neither a Marian model (*.npz) nor "
                                                                        "one of"),
    "two models": (lambda folder: shutil.copy(folder / "opus.npz", folder / "b.npz"), "*.npz; found b.npz, opus"),
    "no options": (lambda folder: change_arrays(folder, **{"special:model.yml": None}), "it has no special:model.yml"),
    "damaged": (lambda folder: (folder / "opus.npz").write_bytes(b"PK\3\4abc"), "opus.npz: the file cannot be read"),
    "pickled": (
        lambda folder: change_arrays(folder, Wemb=np.array([{}], object)), "opus.npz: the file cannot be read"
    ),
    "RNN": (lambda folder: change_options(folder, type="s2s"), "the option type: 's2s' is not "
                                                               "supported"),
    "gelu": (
        lambda folder: change_options(folder, **{"transformer-ffn-activation": "gelu"}),
        "opus.npz: the option transformer-ffn-activation: 'gelu' is not supported",
    ),
    "normalization": (
        lambda folder: change_options(folder, **{"transformer-postprocess": "da"}),
        "the options transformer-preprocess: '', transformer-postprocess: 'da', "
        "transformer-postprocess-top: ''",
    ),
    "word penalty": (
        lambda folder: (folder / "decoder.yml").write_text("word-penalty: 0.5"),
        "decoder.yml: the option word-penalty: 0.5 is not supported",
    ),
    "heads": (
        lambda folder: change_options(folder, **{"transformer-heads": 3}),
        "opus.npz: model.d_model must be a multiple of num_heads=3",
    ),
    "deeper": (
        lambda folder: change_options(folder, **{"enc-depth": 3}),
        "the weight encoder/2/self_attention/query/kernel is missing: the weights do not match "
        "the options of the model",
    ),
    "strange weight": (
        lambda folder: change_arrays(folder, encoder_bi_W=np.zeros(3, "float32")),
        "opus.npz: the weight encoder_bi_W is not supported",
    ),
    "integers": (
        lambda folder: change_arrays(folder, decoder_l1_self_Wk=np.zeros((16, 16), "int8")),
        "opus.npz: the weight decoder_l1_self_Wk of type int8 is not supported",
    ),
    "shape": (
        lambda folder: change_arrays(folder, decoder_l1_ffn_W1=np.zeros((16, 8), "float32")),
        "the weight decoder/0/feed_forward/hidden/kernel must be of the shape (16, 24); received "
        "the weight",
    ),
    "no vocabulary": (lambda folder: (folder / "opus.vocab.yml").unlink(), "opus.vocab.yml: the file is missing"),
    "no SentencePiece": (lambda folder: (folder / "target.spm").unlink(), "target.spm: the file is missing"),
    "other SentencePiece": (
        lambda folder: (folder / "source.spm").write_bytes(b"abc"), "source.spm: model must be the "
                                                                    "content of a"
    ),
    "smaller vocabulary": (
        lambda folder: save_vocab_yml(folder / "opus.vocab.yml", ["</s>", "<unk>", "a"]),
        "opus.vocab.yml: the number of pieces must be the model's",
    ),
    "not a vocabulary": (lambda folder: (folder / "opus.vocab.yml").write_text("[1, 2]"), "it must map pieces to ids"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_its_line_and_nothing_is_written(mistake, marian_folder, tmp_path, capsys):
    make, message = MISTAKES[mistake]
    make(marian_folder)
    with pytest.raises(SystemExit) as exit:
        import_here(marian_folder, tmp_path / "model")
    assert exit.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("keras-transformer import: error: ") and message in line
    assert not (tmp_path / "model").exists() and [file.name for file in tmp_path.iterdir()] == [
        "marian"
    ]


HUGGING_FACE = {
    **dict(
        model_type="marian",
        activation_function="swish",
        scale_embedding=True,
        vocab_size=9,
        d_model=4,
    ),
    **dict(
        encoder_layers=1, decoder_layers=1, encoder_attention_heads=1, decoder_attention_heads=1
    ),
    **dict(encoder_ffn_dim=4, decoder_ffn_dim=4),
}


def hugging_face_arrays(vocab_size, d_model, d_ff, depths=(1, 1), is_tied=True):
    """Random weights under Hugging Face's names."""
    generator = np.random.default_rng(0)
    shapes = {"final_logits_bias": (1, vocab_size)}
    tables = (
        ["model.shared"]
        if is_tied
        else ["model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"]
    )
    shapes |= {f"{table}.weight": (vocab_size, d_model) for table in tables}
    for side, depth, attentions in zip(
        ("encoder", "decoder"), depths, (["self_attn"], ["self_attn", "encoder_attn"])
    ):
        for layer in (f"model.{side}.layers.{i}" for i in range(depth)):
            denses = {
                f"{name}.{part}_proj": (d_model, d_model)
                for name in attentions
                for part in ("q", "k", "v", "out")
            }
            for dense, shape in {**denses, "fc1": (d_ff, d_model), "fc2": (d_model, d_ff)}.items():
                shapes |= {f"{layer}.{dense}.weight": shape, f"{layer}.{dense}.bias": shape[:1]}
            for norm in (*attentions, "final"):
                shapes |= {
                    f"{layer}.{norm}_layer_norm.{kind}": (d_model,) for kind in ("weight", "bias")
                }
    return {name: generator.normal(size=shape).astype("float32") for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model_type="t5"), "config.json: the option model_type: 't5' is not supported"),
        (
            dict(scale_embedding=False),
            "config.json: the option scale_embedding: False is not supported",
        ),
        (
            dict(decoder_ffn_dim=8),
            "config.json: decoder_ffn_dim must be encoder_ffn_dim=4; received decoder_ffn_dim=8",
        ),
        (
            dict(vocab_size=None),
            "config.json: vocab_size must be of type int; received vocab_size=None",
        ),
        (dict(), "model.safetensors: the file is missing"),
        (
            dict(weights={"pooler.weight": 1}),
            "model.safetensors: the weight pooler.weight is not supported",
        ),
        (dict(weights={"model.shared.weight": 1}), "vocab.json: the file is missing"),
        (dict(weights={}, vocab=["a"]), "vocab.json: the file cannot be read as JSON"),
        (
            dict(weights={}, vocab={"a": 0}),
            "vocab.json: the number of pieces must be the model's 9; received",
        ),
        (
            dict(weights={}, vocab={"a": "b"}),
            "vocab.json: the id of 'a' must be of type int; received",
        ),
        (dict(weights=b"abc"), "model.safetensors: the file cannot be read"),
    ],
)
def test_each_mistake_in_a_folder_of_hugging_face_has_its_line(changes, message, tmp_path, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    weights, vocab = (changes.pop(name, None) for name in ("weights", "vocab"))
    (folder / "config.json").write_text(json.dumps({**HUGGING_FACE, **changes}))
    if isinstance(weights, bytes):
        (folder / "model.safetensors").write_bytes(weights)
    elif weights is not None:
        save_file(
            {name: np.zeros((9, 4), "float32") for name in weights}, folder / "model.safetensors"
        )
    if vocab is not None:
        (folder / "vocab.json").write_text(json.dumps(vocab) if isinstance(vocab, dict) else "{")
    with pytest.raises(SystemExit):
        import_here(folder, tmp_path / "model")
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not (tmp_path / "model").exists()


def test_a_directory_is_not_written_over(marian_folder, tmp_path, capsys):
    (tmp_path / "model").mkdir()
    with pytest.raises(SystemExit):
        import_here(marian_folder, tmp_path / "model")
    assert "already exists; import the model into a new directory" in capsys.readouterr().err


def train_sentencepiece(lines, path, vocab_size, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path.with_suffix("")), vocab_size=vocab_size,
        bos_id=-1, eos_id=0, unk_id=1, minloglevel=2, hard_vocab_limit=False, **options,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def pieces_of(processor):
    return [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
