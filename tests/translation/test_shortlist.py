"""A translator with a shortlist, against one whose model gives all other pieces logits of minus
infinity."""

import zipfile

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import DamagedFileError, InvalidFileError
from keras_transformer.export.servable import export_servable
from keras_transformer.model_dir.shortlist_file import Shortlist, read_shortlist, write_shortlist
from keras_transformer.translation import Sampling, Translator

TEXTS = [source for source, _ in sentence_pairs()][::9] + [
    "Anna Anna two trees, dog dog dog.",
    "",
    "🙂 xyz",
]
RESTRICTED = dict(beam_size=3, no_repeat_ngram_size=2, repetition_penalty=1.3, min_length=5)


class OnlyThese:
    """A model for which all tokens but some have logits of minus infinity."""

    def __init__(self, model):
        self.config, self.weights, self._model = model.config, model.weights, model
        self._penalties = tf.Variable(tf.zeros(model.config.target_vocab_size))

    def allow(self, token_ids):
        is_allowed = np.isin(np.arange(self.config.target_vocab_size), token_ids)
        self._penalties.assign(np.where(is_allowed, 0, -np.inf))

    def start_decoding(self, *args, **options):
        step, state = self._model.start_decoding(*args, **options)

        def restricted(*args):
            logits, state = step(*args)
            return logits + self._penalties, state

        return restricted, state


@pytest.fixture(scope="module")
def plain(tiny_model_dir):
    return Translator.load(tiny_model_dir)


def with_shortlist(translator, shortlist, **decoding):
    return Translator(
        translator.model, translator.tokenizers, DecodingConfig(**decoding), shortlist=shortlist
    )


def random_shortlist(vocab_size):
    rng = np.random.default_rng(0)
    return Shortlist(
        rng.integers(0, vocab_size, (vocab_size, 7)).astype("int32"),
        np.union1d(np.arange(4), rng.choice(vocab_size, 20)).astype("int32"),
    )


def pieces_of(shortlist, translator, text, prefix=""):
    """The pieces that a translation may have, computed in NumPy."""
    last = translator.model.config.max_length - 1
    source = [*translator.tokenizers.source.tokenize([text]).to_list()[0][:last], 3]
    prefix_ids = translator.tokenizers.target.tokenize([prefix]).to_list()[0]
    return np.unique([*shortlist.always, *shortlist.by_source[source].reshape(-1), *prefix_ids])


def assert_same(actual, expected, **tolerances):
    (texts, scores), (expected_texts, expected_scores) = zip(*actual), zip(*expected)
    assert texts == expected_texts
    np.testing.assert_allclose(scores, expected_scores, **tolerances)


def test_the_candidates_of_a_batch_are_those_of_its_texts(plain):
    shortlist = random_shortlist(plain.model.config.target_vocab_size)
    table = with_shortlist(plain, shortlist).candidates
    source = tf.ragged.constant([[5, 6, 3], [200, 3]], dtype=tf.int32).to_tensor()
    expected = np.unique([*shortlist.always, *shortlist.by_source[[5, 6, 3, 200, 0]].reshape(-1)])
    assert table.of(source, None).numpy().tolist() == expected.tolist()
    expected = np.unique([*expected, 77, 300])
    assert table.of(source, tf.constant([[2, 77], [-1, 300]])).numpy().tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("decoding", "options"),
    [
        pytest.param(dict(beam_size=4), dict(n=4), marks=pytest.mark.slow),
        (dict(beam_size=1, forbidden_tokens="unknown"), {}),
        pytest.param(
            dict(beam_size=1), dict(sampling=Sampling(3, top_k=9)), marks=pytest.mark.slow
        ),
        pytest.param(RESTRICTED, dict(n=3, prefixes=True), marks=pytest.mark.slow),
    ],
    ids=["beam", "greedy", "sampling", "prefixes and restrictions"],
)
def test_translations_are_those_of_a_model_without_the_other_pieces(plain, decoding, options):
    shortlist = random_shortlist(plain.model.config.target_vocab_size)
    translator = with_shortlist(plain, shortlist, **decoding)
    only_these = OnlyThese(plain.model)
    expected = Translator(only_these, plain.tokenizers, translator.decoding)
    for i, text in enumerate(TEXTS):
        prefix = ["", "Anna", "der Hund hat", "ein"][i % 4] if "prefixes" in options else ""
        only_these.allow(pieces_of(shortlist, plain, text, prefix))
        if "prefixes" in options:
            options["prefixes"] = [prefix]
        (actual,), (of_others,) = (
            translator.translate([text], **options),
            expected.translate([text], **options),
        )
        assert_same(actual.hypotheses, of_others.hypotheses, rtol=1e-4)


@pytest.mark.slow
def test_with_every_piece_in_the_list_translations_are_those_without_it(plain):
    everything = np.arange(plain.model.config.target_vocab_size, dtype="int32")
    translator = with_shortlist(
        plain, Shortlist(np.zeros((len(everything), 1), "int32"), everything), beam_size=4
    )
    for actual, expected in zip(
        translator.translate(TEXTS, 4), plain.translate(TEXTS, 4), strict=True
    ):
        assert_same(actual.hypotheses, expected.hypotheses, rtol=1e-5, atol=1e-5)
    # Given translations are scored among all pieces.
    few = with_shortlist(plain, random_shortlist(len(everything)))
    np.testing.assert_array_equal(
        few.score(TEXTS[:3], TEXTS[:3]), plain.score(TEXTS[:3], TEXTS[:3])
    )


@pytest.mark.slow
def test_a_saved_model_searches_the_shortlist(plain, tmp_path):
    translator = with_shortlist(plain, random_shortlist(plain.model.config.target_vocab_size))
    # Verified in session mode, against the translator.
    path = export_servable(translator, tmp_path, signatures=["translate"])
    answers = tf.saved_model.load(str(path)).signatures["translate"](tf.constant(TEXTS))
    actual = translator.translate(TEXTS)
    assert [text.decode() for text in answers["text"].numpy()] == [
        result.hypotheses[0][0] for result in actual
    ]
    np.testing.assert_allclose(
        answers["score"], [result.hypotheses[0][1] for result in actual], rtol=1e-4
    )
    assert [result.hypotheses[0][0] for result in actual] != plain(TEXTS)


def test_a_shortlist_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "shortlist.npz"
    for vocab_size in (500, 70_000):
        shortlist = random_shortlist(vocab_size)
        write_shortlist(path, shortlist, [b"a", b"b"])
        for read, written in zip(
            read_shortlist(path, vocab_size, vocab_size, [b"a", b"b"]), shortlist, strict=True
        ):
            assert read.dtype == "int32"
            np.testing.assert_array_equal(read, written)


def test_a_shortlist_that_does_not_fit_is_refused(tmp_path):
    path = tmp_path / "shortlist.npz"
    write_shortlist(path, random_shortlist(500), [b"a"])
    with pytest.raises(InvalidFileError, match="made with other tokenizers; rebuild it with keras"):
        read_shortlist(path, 500, 500, [b"b"])
    with pytest.raises(DamagedFileError, match="does not hold ids of target tokens"):
        read_shortlist(path, 500, 300, [b"a"])
    with pytest.raises(DamagedFileError, match="tokens are missing"):
        read_shortlist(path, 501, 500, [b"a"])
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(
        DamagedFileError, match="its SHA-256 checksum is not the one in shortlist.npz.sha256"
    ):
        read_shortlist(path, 500, 500, [b"a"])
    (tmp_path / "shortlist.npz.sha256").unlink()
    for content in (path.read_bytes(), b"", b"PK", b"nothing"):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match="the shortlist is damaged") as error:
            read_shortlist(path, 500, 500, [b"a"])
        assert "pickle" not in str(error.value)


def test_a_shortlist_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path = tmp_path / "shortlist.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("by_source.npy", bytes(2**28))
        archive.writestr("always.npy", bytes(2**20))
    rule = "its arrays must take at most 268,435,456 bytes; they take 269,484,032"
    with pytest.raises(DamagedFileError, match=f"shortlist.npz: .* is damaged .{rule}"):
        read_shortlist(path, 500, 500, [b"a"])
