"""The CTranslate2 model against ours: two independent engines, the same weights, the same
translations."""

import contextlib
import functools
import io
import json

import ctranslate2
import numpy as np
import numpy_transformer as reference
import pytest
import sentencepiece
from conftest import sentence_pairs

from keras_transformer.commands.main import main
from keras_transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TransformerConfig,
)
from keras_transformer.decoding import beam_search, greedy_search
from keras_transformer.errors import ConfigError
from keras_transformer.export.ctranslate2 import export_ctranslate2
from keras_transformer.export.onnx import export_onnx
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.shortlist_file import Shortlist
from keras_transformer.models import build_transformer
from keras_transformer.tokenizers import TokenizerPair, WordPieceTokenizer, load_tokenizers
from keras_transformer.tokenizers.sentencepiece import prepare_line
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator

VOCABULARY = [*WordPieceTokenizer.special_pieces, *"abcdefgh"]
START, END = 2, 3
MAX_LENGTH = 16
# The last are too long, and are cut.
SENTENCES = [
    list(np.random.default_rng(length).integers(4, len(VOCABULARY), length))
    for length in range(1, 19)
]
MODELS = {
    # Less sharp, it would have the same translation for every source.
    "post-norm, sinusoids, all tied": dict(sharpness=1.5),
    "post-norm, learned positions, target tied": dict(
        positions="learned",
        tie_embeddings="target",
        activation="swish",
        num_heads=3,
        key_dim=7,
        attention_bias=True,
        logits_bias=True,
    ),
    "pre-norm, sinusoids, untied": dict(
        norm_first=True,
        tie_embeddings="none",
        logits_bias=True,
        activation="silu",
        num_heads=1,
        num_encoder_layers=3,
        num_decoder_layers=1,
    ),
    "pre-norm, learned positions, all tied": dict(
        norm_first=True,
        positions="learned",
        activation="gelu",
        key_dim=5,
        value_dim=5,
        feed_forward_bias=False,
    ),
    "pre-norm, rotary positions, RMS, SwiGLU, grouped queries": dict(
        norm_first=True,
        positions="rotary",
        normalization="rms",
        gated=True,
        activation="silu",
        feed_forward_bias=False,
        num_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
    ),
    "rotary positions alone": dict(positions="rotary", key_dim=6),
    "RMS normalization alone": dict(normalization="rms", sharpness=0.7),
    "GEGLU alone": dict(gated=True, activation="gelu", sharpness=0.9),
    "one head of keys and values alone": dict(num_heads=4, num_key_value_heads=1),
}


# How far one token's log probability may be from that in float64, or from the other engine's. These
# models make no more than a quarter of it of roundings to float32.
TOLERANCE = 4e-5


def random_translator(sharpness=1.0, tokenizers=None, **changes):
    sizes = dict(num_layers=2, d_model=16, d_ff=24, num_heads=2, max_length=MAX_LENGTH)
    vocab_sizes = dict(source_vocab_size=len(VOCABULARY), target_vocab_size=len(VOCABULARY))
    model = build_transformer(
        TransformerConfig(**{**sizes, **vocab_sizes, **changes}), dtype="float32"
    )
    for variable in reference.randomize(model).trainable_variables:
        if len(variable.shape) == 2:
            variable.assign(variable * sharpness)
    return Translator(model, tokenizers or WordPieceTokenizer(VOCABULARY), DecodingConfig())


def load(path):
    return ctranslate2.Translator(str(path), compute_type="float32", intra_threads=1)


QUICK = "pre-norm, rotary positions, RMS, SwiGLU, grouped queries"


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name == QUICK else pytest.mark.slow) for name in MODELS],
)
def engines(request, tmp_path_factory):
    translator = random_translator(**MODELS[request.param])
    path = export_ctranslate2(translator, tmp_path_factory.mktemp("ctranslate2"))
    return translator.model, load(path)


def pieces(sentences):
    return [[VOCABULARY[token_id] for token_id in sentence] for sentence in sentences]


def padded(sentences):
    rows = [[*sentence[: MAX_LENGTH - 1], END] for sentence in sentences]
    return np.array([row + [0] * (MAX_LENGTH - len(row)) for row in rows], "int32")


def log_probs(forward, sources, targets):
    """Log probabilities of all target tokens and the end token, one array per sentence; `forward`
    returns logits."""
    labels = padded(targets)
    target = np.concatenate([np.full((len(labels), 1), START), labels[:, :-1]], axis=1)
    logits = reference.array(forward(padded(sources), target))
    probabilities = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    chosen = np.take_along_axis(probabilities, labels[..., None], axis=-1)[..., 0]
    return [row[label != 0] for row, label in zip(chosen, labels)]


def scores_of(engine, sources, targets):
    scored = engine.score_batch(pieces(sources), pieces(targets), max_input_length=MAX_LENGTH)
    return [result.log_probs for result in scored]


def assert_same_scores(model, engine):
    """Ours and theirs are those of NumPy in float64."""
    expected = log_probs(
        functools.partial(reference.transformer, model), SENTENCES, SENTENCES[::-1]
    )
    ours = log_probs(
        lambda source, target: model({"source": source, "target": target}),
        SENTENCES,
        SENTENCES[::-1],
    )
    for received in (ours, scores_of(engine, SENTENCES, SENTENCES[::-1])):
        assert [len(row) for row in received] == [len(row) for row in expected]
        np.testing.assert_allclose(
            np.concatenate(received), np.concatenate(expected), rtol=0, atol=TOLERANCE
        )


def test_every_token_of_a_given_translation_has_the_same_log_probability(engines):
    assert_same_scores(*engines)


def search(model, beam_size, max_length):
    """The best translation of every sentence by our search, and its log probability."""
    step, state = model.start_decoding(padded(SENTENCES), beam_size, max_length)
    limits = [max_length] * len(SENTENCES)
    arguments = dict(max_length=max_length, start_ids=START, end_ids=END)
    if beam_size == 1:
        hypotheses = greedy_search(step, state, limits, **arguments)
    else:
        arguments.update(beam_size=beam_size, length_penalty=0.0)
        hypotheses = beam_search(step, state, limits, **arguments)
    token_ids, lengths, scores = (reference.array(tensor)[:, 0] for tensor in hypotheses[:3])
    best = [row[: int(length)].astype(int) for row, length in zip(token_ids, lengths)]
    return pieces(best), scores


def their_search(engine, beam_size, max_length):
    results = engine.translate_batch(
        pieces(SENTENCES),
        beam_size=beam_size,
        length_penalty=0,
        max_input_length=MAX_LENGTH,
        max_decoding_length=max_length,
        min_decoding_length=0,
        return_end_token=True,
        return_scores=True,
    )
    return [result.hypotheses[0] for result in results], [result.scores[0] for result in results]


def assert_same_sums(theirs, ours, translations):
    """Asserts that sums of log probabilities agree, each within the tolerance of its tokens."""
    tolerances = TOLERANCE * np.array([len(translation) for translation in translations])
    assert np.all(np.abs(np.subtract(theirs, ours)) <= tolerances), (theirs, ours)


# All sentences of 2 tokens have their place in the beam, so that both find the best of 3.
@pytest.mark.parametrize("beam_size, max_length", [(1, MAX_LENGTH), (len(VOCABULARY) ** 2, 3)])
def test_searches_that_lose_nothing_find_the_same(engines, beam_size, max_length):
    model, engine = engines
    translations, scores = search(model, beam_size, max_length)
    their_translations, their_scores = their_search(engine, beam_size, max_length)
    assert len(set(map(tuple, translations))) > 1 or beam_size > 1
    assert their_translations == translations
    assert_same_sums(their_scores, scores, translations)


@pytest.mark.slow
def test_in_a_narrow_beam_ours_is_the_same_or_more_probable(engines):
    model, engine = engines
    # An end token among the second beam_size candidates of a step finishes a sentence here, not
    # there.
    ours, theirs = search(model, 4, MAX_LENGTH), their_search(engine, 4, MAX_LENGTH)
    same = 0
    for translation, score, their_translation, their_score in zip(*ours, *theirs):
        if their_translation == translation:
            same += 1
            assert_same_sums([their_score], [score], [translation])
        else:
            assert their_score < score
    assert same > 3


@pytest.mark.slow
def test_the_epsilon_of_normalization_is_ours(tmp_path):
    translator = random_translator(norm_first=True, positions="learned", tie_embeddings="none")
    for embedding in (translator.model.source_embedding, translator.model.target_embedding):
        for table in embedding.trainable_variables:
            table.assign(table * 1e-3)
    path = export_ctranslate2(translator, tmp_path)
    assert_same_scores(translator.model, load(path))
    config = json.loads((path / "config.json").read_text())
    assert config.pop("layer_norm_epsilon") == 1e-6
    # The variances are small enough for CTranslate2's own epsilon to be noticed.
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_scores(translator.model, load(path))


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
def test_less_usual_activations_are_the_same(activation, tmp_path):
    # It is published if it scores texts as the translator does.
    assert export_ctranslate2(random_translator(activation=activation), tmp_path).name == "1"


@pytest.mark.slow
def test_the_folder_holds_what_ctranslate2_reads_and_the_tokenizer(tmp_path):
    translator = random_translator()
    path = export_ctranslate2(translator, tmp_path / "models")
    assert path == tmp_path / "models" / "1"
    files = {file.name for file in path.iterdir()}
    assert files == {"model.bin", "config.json", "shared_vocabulary.json", "vocab.txt"}
    assert json.loads((path / "shared_vocabulary.json").read_text()) == VOCABULARY
    assert WordPieceTokenizer.load(path / "vocab.txt").vocabulary == tuple(VOCABULARY)
    assert export_ctranslate2(translator, tmp_path / "models").name == "2"
    # CTranslate2 makes no sinusoids of its own for longer sentences.
    (result,) = load(path).translate_batch([["a"] * 2000], beam_size=1)
    assert len(result.hypotheses[0]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"sliding_window": 2}, "null for CTranslate2"),
        ({"value_dim": 3}, "null or 8 for CTranslate2"),
        ({"activation": "elu"}, "relu, gelu, silu, swish, tanh or sigmoid for CTranslate2"),
        ({"positions": "alibi"}, "sinusoidal, tensor2tensor, learned or rotary for CTranslate2"),
        ({"positions": "t5"}, "sinusoidal, tensor2tensor, learned or rotary for CTranslate2"),
        ({"query_key_norm": True}, "false for CTranslate2"),
    ],
)
def test_what_ctranslate2_cannot_do_is_named_and_nothing_is_written(tmp_path, changes, rule):
    ((name, value),) = changes.items()
    with pytest.raises(ConfigError) as error:
        export_ctranslate2(random_translator(**changes), tmp_path / "models")
    assert str(error.value) == f"model.{name} must be {rule}; received model.{name}={value!r}"
    assert not (tmp_path / "models").exists()


@pytest.mark.slow
def test_languages_with_vocabularies_of_their_own(tmp_path):
    french = [*WordPieceTokenizer.special_pieces, *"stuvw"]
    tokenizers = TokenizerPair(WordPieceTokenizer(VOCABULARY), WordPieceTokenizer(french))
    translator = random_translator(
        tokenizers=tokenizers,
        target_vocab_size=len(french),
        tie_embeddings="target",
        norm_first=True,
    )
    # It is published if it scores texts as the translator does.
    path = export_ctranslate2(translator, tmp_path)
    assert [
        json.loads((path / f"{side}_vocabulary.json").read_text()) for side in ("source", "target")
    ] == [
        VOCABULARY,
        french,
    ]
    assert load_tokenizers(
        path, TokenizerConfig("wordpiece", shared=False), "none"
    ).target.vocabulary == tuple(french)
    (result,) = load(path).score_batch([["a", "c", "b"]], [["u", "w"]])
    np.testing.assert_allclose(
        sum(result.log_probs), translator.score(["a c b"], ["u w"]), atol=3 * TOLERANCE
    )


@pytest.fixture(scope="module")
def with_tags():
    """A translator that puts a tag, translations of terms and a placeholder into the texts that are
    compared."""
    texts = [text for pair in sentence_pairs() for text in pair]
    tokenizer = train_tokenizer(texts, "bpe", 340, tags=[">>de<<"], terms=True)
    sizes = dict(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    decoding = DecodingConfig(tag=">>de<<", terms={"dog": "Hund"}, placeholders=True, keep=["Zwei"])
    return Translator(random_translator(tokenizers=tokenizer, **sizes).model, tokenizer, decoding)


@pytest.mark.parametrize(
    "export", [export_ctranslate2, pytest.param(export_onnx, marks=pytest.mark.slow)]
)
def test_texts_are_compared_without_what_the_format_has_not(with_tags, tmp_path, export):
    path = export(with_tags, tmp_path)
    assert path == tmp_path / "1" and (path / "tokenizer.model").is_file()


def test_a_model_that_was_trained_with_tags_alone_needs_none_here(with_tags, tmp_path, capsys):
    model_dir, tokenizer = ModelDir(tmp_path / "model"), with_tags.tokenizers.source
    model_dir.path.mkdir()
    tokenizer.save(model_dir.path / tokenizer.filename)
    with_tags.model.save_weights(model_dir.best_path)
    tokenizer_config, data = (
        TokenizerConfig("bpe", tokenizer.vocab_size),
        DataConfig(tags=[">>de<<"]),
    )
    model_dir.write_config(Config(with_tags.model.config, tokenizer_config, data=data))
    arguments = ["export", "--model-dir", str(model_dir), "--output", str(tmp_path / "out")]
    main([*arguments, "--format", "ctranslate2"])
    assert capsys.readouterr().out == f"{tmp_path / 'out' / '1'}\n"
    with pytest.raises(SystemExit):
        main(arguments)
    assert "give --tag, one of >>de<<" in capsys.readouterr().err


def test_a_model_that_scores_otherwise_is_not_published(tmp_path, monkeypatch):
    translator = random_translator()
    monkeypatch.setattr(Translator, "score", lambda self, sources, targets: [-1.0] * len(sources))
    with pytest.raises(RuntimeError, match="log probabilities"):
        export_ctranslate2(translator, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def trained(tiny_model_dir, tmp_path_factory):
    """Path of a trained model, written by the command."""
    folder = tmp_path_factory.mktemp("trained")
    printed = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(printed)) as stream:
        main(
            [
                "export",
                "--model-dir",
                str(tiny_model_dir),
                "--output",
                str(folder),
                "--format",
                "ctranslate2",
            ]
        )
        stream.flush()
    assert printed.getvalue().decode() == f"{folder / '1'}\n"
    return folder / "1"


@pytest.mark.parametrize("beam_size", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_text_is_translated_by_ctranslate2_and_sentencepiece_alone(
    trained, tiny_model_dir, beam_size
):
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(trained / "tokenizer.model"))
    sources, targets = zip(*sentence_pairs())
    sources += ("the dog  paints 🙂 漢字.", "Zoë\u2581greets\u241b")
    results = load(trained).translate_batch(
        tokenizer.encode([prepare_line(source) for source in sources], out_type=str),
        beam_size=beam_size,
        length_penalty=0,
        max_input_length=64,
        max_decoding_length=64,
        min_decoding_length=0,
        return_scores=True,
    )
    translations = [tokenizer.decode(result.hypotheses[0])[1:] for result in results]
    assert translations[: len(targets)] == list(targets)
    # The translator may stop `max_extra_tokens` after the source's length, CTranslate2 stops at one
    # length for all.
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_tokens=64)
    expected = Translator.load(tiny_model_dir, decoding).n_best(sources, 1)
    assert translations == [best[0][0] for best in expected]
    np.testing.assert_allclose(
        [result.scores[0] for result in results],
        [best[0][1] for best in expected],
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.slow
def test_both_engines_find_the_same_among_the_pieces_of_a_shortlist(
    trained, tiny_model_dir, tmp_path
):
    plain = Translator.load(tiny_model_dir)
    tokenizer = plain.tokenizers.source
    rng = np.random.default_rng(0)
    # Too short for most translations, so that both have to take other pieces.
    shortlist = Shortlist(
        rng.integers(4, tokenizer.vocab_size, (tokenizer.vocab_size, 5), "int32"),
        np.union1d(range(4), rng.choice(tokenizer.vocab_size, 40)).astype("int32"),
    )
    decoding = DecodingConfig(beam_size=1, max_extra_tokens=64)
    translator = Translator(plain.model, plain.tokenizers, decoding, shortlist=shortlist)
    engine = load(export_ctranslate2(translator, tmp_path))
    sources = [source for source, _ in sentence_pairs()[:16]]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.file_content)
    pieces = processor.encode([prepare_line(source) for source in sources], out_type=str)
    # Each sentence with a list of its own.
    options = dict(beam_size=1, max_decoding_length=64, min_decoding_length=0, max_batch_size=1)
    theirs, theirs_of_all = (
        [
            processor.decode(result.hypotheses[0]).removeprefix(" ")
            for result in engine.translate_batch(pieces, use_vmap=use_vmap, **options)
        ]
        for use_vmap in (True, False)
    )
    assert [translator([source])[0] for source in sources] == theirs != theirs_of_all
