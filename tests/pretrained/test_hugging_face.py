"""Hugging Face's classes: outputs of PyTorch and its tokenizers compared with those of imported and
exported models.

.venv/bin/pip install -e '.[benchmarks]' && .venv/bin/python -m pytest
tests/pretrained/test_hugging_face.py
"""

import itertools
import json
import operator
import random
import sys

import numpy as np
import numpy_transformer as reference
import pytest
import tensorflow as tf
import torch
import transformers
from test_pretrained import PAIRS, import_here, pieces_of, train_sentencepiece

from keras_transformer import Translator
from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.export.hugging_face import export_hugging_face
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import build_transformer
from keras_transformer.tokenizers import SentencePieceTokenizer, load_tokenizers
from keras_transformer.training.batches.vocabulary import train_tokenizer

# Triton, which comes with PyTorch's build for GPUs, ends a process that TensorFlow is loaded in:
# both contain LLVM. transformers and PyTorch do without it if it cannot be imported.
sys.modules["triton"] = None
LANGUAGES = (">>deu<<", ">>fra<<")
SCRIPTS = (
    "abcdefghij",
    "àéîõüßñç",
    "абвгдежз",
    "αβγδεζηθ",
    "אבגדהוזח",
    "ابتثجحخد",
    "अआइईउऊएऐ",
    "漢字仮名交混文語",
)


def save_tokenizer(folder):
    """A vocabulary of the pieces of both languages, in a different order."""
    source, target = (
        train_sentencepiece([pair[side] for pair in PAIRS], folder / f"{name}.spm", 250 + 30 * side)
        for side, name in enumerate(("source", "target"))
    )
    pieces = sorted({*pieces_of(source), *pieces_of(target), *LANGUAGES} - {"</s>", "<unk>"})
    random.Random(0).shuffle(pieces)
    # As OPUS-MT does: some rare pieces of the SentencePiece models are not in the vocabulary.
    vocabulary = ["</s>", "<unk>", *pieces[20:], "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    names = {name: str(folder / f"{name}.spm") for name in ("source", "target")}
    tokenizer = transformers.MarianTokenizer(
        names["source"], names["target"], str(folder / "vocab.json"), model_max_length=512
    )
    tokenizer.save_pretrained(folder)
    return tokenizer, len(vocabulary)


@pytest.fixture(scope="module", params=["swish, tied", "relu, untied"])
def hugging_face(request, tmp_path_factory):
    """A PyTorch model with random weights, its tokenizer, and the path of the model directory
    imported from it."""
    folder = tmp_path_factory.mktemp("hugging_face")
    tokenizer, vocab_size = save_tokenizer(folder)
    is_tied = "untied" not in request.param
    config = transformers.MarianConfig(
        **dict(vocab_size=vocab_size, decoder_vocab_size=vocab_size, d_model=64),
        **dict(encoder_layers=6, decoder_layers=6 if is_tied else 2),
        **dict(
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
        ),
        **dict(pad_token_id=vocab_size - 1, decoder_start_token_id=vocab_size - 1, eos_token_id=0),
        **dict(scale_embedding=True, activation_function=request.param.partition(",")[0]),
        **dict(
            share_encoder_decoder_embeddings=is_tied,
            tie_word_embeddings=is_tied,
            max_position_embeddings=512,
        ),
    )
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name and parameter.ndim:
                noise = torch.randn(parameter.shape, generator=generator)
                is_scale = "layer_norm" in name and name.endswith("weight")
                parameter.copy_(
                    noise * (0.1 if parameter.ndim == 2 else 0.2) + (1.0 if is_scale else 0.0)
                )
        for embedding in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            embedding.weight[-1] = 0
        model.final_logits_bias.copy_(
            torch.randn(model.final_logits_bias.shape, generator=generator)
        )
    model.save_pretrained(folder)
    return model, tokenizer, import_here(folder, tmp_path_factory.mktemp("imported") / "model")


def texts(number):
    rng = random.Random(5)
    lines = []
    for i in range(number):
        source = rng.choice(PAIRS)[rng.randrange(2)]
        foreign = "".join(rng.choices(SCRIPTS[i % len(SCRIPTS)] + " .,", k=rng.randrange(12)))
        place = rng.randrange(len(source))
        language = rng.choice(
            ["", "", f"{rng.choice(LANGUAGES)} ", ">>xyz<< ", ">>deu<<", " >>fra<< "]
        )
        lines.append(language + source[:place] + foreign + source[place:])
    return lines


def their_ids(path, ids, tokenizer):
    """Returns the table from our ids to theirs, and the converted ids."""
    pair = load_tokenizers(path, ModelDir(path).read_config().tokenizer, "none")
    special = [
        tokenizer.pad_token_id,
        tokenizer.unk_token_id,
        tokenizer.pad_token_id,
        tokenizer.eos_token_id,
    ]
    table = np.array(
        [*special, *(tokenizer.encoder[piece] for piece in pair.target.vocabulary[4:])]
    )
    return table, [[int(table[token_id]) for token_id in row] for row in ids]


def test_text_is_read_as_their_tokenizer_reads_it(hugging_face):
    _, tokenizer, path = hugging_face
    lines = [*texts(1000), "", " ", "a", ">>fra<<", ">>a", "<<", ">>>><<<<", "tab\tand\nnewline"]
    pair = load_tokenizers(path, ModelDir(path).read_config().tokenizer, "none")
    for side, theirs in (("source", tokenizer(lines)), ("target", tokenizer(text_target=lines))):
        _, ours = their_ids(path, getattr(pair, side).tokenize(lines).to_list(), tokenizer)
        different = [
            (line, a, b)
            for line, a, b in zip(lines, ours, theirs["input_ids"], strict=True)
            if [*a, 0] != b
        ]
        assert not different, (len(different), different[:3])


def test_logits_are_those_of_pytorch(hugging_face):
    model, tokenizer, path = hugging_face
    translator = Translator.load(path)
    rng = np.random.default_rng(0)
    vocab_size = translator.model.config.target_vocab_size
    source, target = (rng.integers(3, vocab_size, (5, length)) for length in (9, 12))
    source[2, 6:] = source[3, 4:] = 0
    target[:, 0] = 2
    logits = np.asarray(translator.model({"source": source, "target": target}))
    table, theirs = their_ids(path, source, tokenizer)
    with torch.no_grad():
        expected = model(
            input_ids=torch.tensor(theirs),
            attention_mask=torch.tensor(source != 0).long(),
            decoder_input_ids=torch.tensor(table[target]),
        ).logits.numpy()
    assert np.abs(expected).max() > 4
    # The start token has no logit of its own there.
    kept = [i for i in range(vocab_size) if i != 2]
    np.testing.assert_allclose(logits[..., kept], expected[..., table[kept]], atol=1e-4)


def translate_by_pytorch(model, tokenizer, lines, beam_size):
    """The token ids, without padding, of every line; all lines have the same number of tokens."""
    inputs = tokenizer(lines, return_tensors="pt")
    with torch.no_grad():
        results = model.generate(
            **inputs,
            # The best log probability, however long the search takes: what a length penalty of 0
            # stands for here.
            **dict(
                num_beams=beam_size, do_sample=False, length_penalty=0.0, early_stopping="never"
            ),
            **dict(max_new_tokens=inputs["input_ids"].shape[1] + 10, forced_eos_token_id=None),
            bad_words_ids=[[tokenizer.pad_token_id]],
        )
    return [without(tokenizer.pad_token_id, row) for row in results[:, 1:].tolist()]


def without(padding, row):
    return [token_id for token_id in row if token_id != padding]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_searches_find_what_pytorch_finds(hugging_face, beam_size):
    model, tokenizer, path = hugging_face
    torch.set_num_threads(1)
    lines = sorted(
        (pair[0] for pair in PAIRS[:100]), key=lambda line: len(tokenizer(line)["input_ids"])
    )
    decoding = DecodingConfig(beam_size, 0.0, max_extra_tokens=10, forbidden_tokens="special")
    results = Translator.load(path, decoding).graph.search(tf.constant(lines))
    ours = [
        without(tokenizer.pad_token_id, row)
        for row in their_ids(path, results.token_ids.numpy()[:, 0], tokenizer)[1]
    ]
    theirs = []
    for _, group in itertools.groupby(lines, key=lambda line: len(tokenizer(line)["input_ids"])):
        theirs += translate_by_pytorch(model, tokenizer, list(group), beam_size)
    assert sum(map(operator.eq, ours, theirs)) >= 99


def test_an_imported_model_becomes_the_files_that_they_wrote(hugging_face, tmp_path):
    model, tokenizer, path = hugging_face
    tokenizer.save_pretrained(tmp_path / "theirs")
    model.save_pretrained(tmp_path / "theirs")
    folder = export_hugging_face(Translator.load(path), tmp_path / "ours")
    for name in ("model.safetensors", "vocab.json", "source.spm", "target.spm"):
        assert (folder / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name
    ours, theirs = (
        json.loads((directory / "config.json").read_text())
        for directory in (folder, tmp_path / "theirs")
    )
    # Theirs has what `transformers` adds of itself too.
    assert {**theirs, **ours, "forced_eos_token_id": 0, "bos_token_id": None} == {
        "bos_token_id": None,
        **theirs,
    }
    lines = texts(300)
    assert (
        transformers.AutoTokenizer.from_pretrained(folder)(lines)["input_ids"]
        == tokenizer(lines)["input_ids"]
    )


EXPORTED = {
    "post-norm": dict(kind="bpe"),
    "post-norm, no ties, other sinusoids": dict(
        kind="unigram",
        tie_embeddings="none",
        positions="tensor2tensor",
        attention_bias=True,
        logits_bias=True,
    ),
    "pre-norm": dict(kind="unigram", norm_first=True, activation="gelu"),
    "pre-norm, learned positions": dict(
        kind="bpe", norm_first=True, positions="learned", logits_bias=True
    ),
}


@pytest.fixture(scope="module", params=EXPORTED)
def exported(request, tmp_path_factory):
    """A translator with random weights, and what `transformers` loads from its folder."""
    changes = dict(EXPORTED[request.param])
    tokenizer = train_tokenizer([text for pair in PAIRS for text in pair], changes.pop("kind"), 400)
    sizes = dict(num_layers=2, d_model=32, d_ff=48, num_heads=4, max_length=64)
    config = TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, **sizes, **changes)
    model = reference.randomize(build_transformer(config, dtype="float32"))
    # The seed has made TensorFlow lose the tokenizer.
    translator = Translator(model, SentencePieceTokenizer(tokenizer.file_content), DecodingConfig())
    folder = export_hugging_face(translator, tmp_path_factory.mktemp("exported"))
    model, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(loading.values())
    return translator, model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def test_their_tokenizer_reads_and_writes_text_as_ours(exported):
    translator, _, tokenizer = exported
    ours = translator.tokenizers.source
    rng = random.Random(3)
    alphabet = "aabbee  ..--!?'\"<>/s0x41\u2581\u241b🙂漢ß\u0301\t\n\r\u00a0\u200b\ufeff"
    lines = [
        *texts(500),
        *("".join(rng.choices(alphabet, k=rng.randrange(40))) for _ in range(500)),
    ]
    lines += ["", " ", "  two  spaces  ", "</s>", "a</s>b <pad> <s> <unk>", "<0x41>"]
    lines += ["12,345.67 €", "aaaaaaaaaaaa ------"]
    ids = ours.tokenize(lines)
    assert tokenizer(lines)["input_ids"] == [[*row, 3] for row in ids.to_list()]
    written = [text.decode() for text in ours.detokenize(ids).numpy()]
    assert (
        tokenizer.batch_decode(tokenizer(lines)["input_ids"], skip_special_tokens=True)
        == written
        == lines
    )


def test_logits_of_an_exported_model_are_ours(exported):
    translator, model, _ = exported
    rng = np.random.default_rng(0)
    source, target = (
        rng.integers(4, translator.model.config.target_vocab_size, (5, size)) for size in (9, 12)
    )
    source[2, 6:] = source[3, 4:] = 0
    target[:, 0] = 2
    with torch.no_grad():
        received = model(
            input_ids=torch.tensor(source),
            attention_mask=torch.tensor(source != 0).long(),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    np.testing.assert_allclose(
        received, translator.model({"source": source, "target": target}), atol=2e-3
    )


@pytest.mark.parametrize("beam_size", [1, 4])
def test_searches_of_an_exported_model_find_what_ours_find(exported, beam_size):
    translator, model, tokenizer = exported
    torch.set_num_threads(1)
    # All at most as long as any source may become, so that only one limit is needed.
    lines = [pair[0] for pair in PAIRS[:100]]
    decoding = DecodingConfig(beam_size, 0.0, max_extra_tokens=64)
    ours = Translator(translator.model, translator.tokenizers, decoding).graph.search(
        tf.constant(lines)
    )
    settings = dict(length_penalty=0.0, early_stopping="never") if beam_size > 1 else {}
    with torch.no_grad():
        inputs = tokenizer(lines, return_tensors="pt", padding=True, truncation=True)
        results = model.generate(**inputs, num_beams=beam_size, **settings)
    # Not texts: of bytes that are not UTF-8, which random weights write, their tokenizer makes
    # other texts.
    rows = ours.token_ids.numpy()[:, 0], results.numpy()[:, 1:]
    assert sum(map(operator.eq, *([without(0, row) for row in side] for side in rows))) >= 99
