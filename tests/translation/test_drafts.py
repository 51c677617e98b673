"""A translator with a drafter: the translations of greedy search, in fewer steps."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from keras_transformer.export.servable import export_servable
from keras_transformer.training.drafter import drafting_model
from session_mode import SavedModelSession

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import DamagedFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.models import Drafter
from keras_transformer.translation import Sampling, Translator

TEXTS = [source for source, _ in sentence_pairs()] + ["Anna Anna two trees, dog dog dog.", "", "🙂 xyz", "a " * 60]
PREFIXES = ["", "Anna", "der", "x y z 🙂"] * (len(TEXTS) // 4)
GREEDY = DecodingConfig(beam_size=1)


@pytest.fixture(scope="module")
def model_dir(tiny_model_dir, tmp_path_factory):
    """The tiny model with a drafter that was trained by the command."""
    path = tmp_path_factory.mktemp("drafts") / "model"
    shutil.copytree(tiny_model_dir, path)
    source = path.with_name("source.txt")
    source.write_text("\n".join(text for text, _ in sentence_pairs()) + "\n\n")
    main(["draft", "--model-dir", str(path), "--source", str(source), "--steps", "80"])
    return ModelDir(path)


@pytest.fixture(scope="module")
def drafting(model_dir):
    translator = Translator.load(model_dir, GREEDY)
    assert translator.graph.drafter is not None
    return translator


@pytest.fixture(scope="module")
def plain(model_dir):
    return Translator.load(model_dir, DecodingConfig(beam_size=1, block_size=1))


def assert_same(translator, expected, **arguments):
    texts, scores = zip(*(result.hypotheses[0] for result in translator.translate(TEXTS, **arguments)))
    expected_texts, expected_scores = zip(*(result.hypotheses[0] for result in expected.translate(TEXTS, **arguments)))
    assert texts == expected_texts
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("arguments", [{}, {"prefixes": PREFIXES}], ids=["", "prefixes"])
def test_translations_are_those_of_greedy_search(drafting, plain, arguments):
    assert_same(drafting, plain, **arguments)


def test_drafts_of_any_quality_give_the_same(drafting, plain):
    for seed in range(3):
        drafter = Drafter(8)
        drafter.build(*[(None, None, plain.model.config.d_model)] * 2)
        generator = np.random.default_rng(seed)
        drafter.set_weights([generator.normal(size=weight.shape) for weight in drafter.get_weights()])
        decoding = DecodingConfig(beam_size=1, block_size=2 + 3 * seed, min_length=4, repetition_penalty=1.2)
        translator = Translator(plain.model, plain.tokenizers, decoding, drafter=drafter)
        assert_same(translator, Translator(plain.model, plain.tokenizers, decoding))


def test_a_trained_drafter_drafts_what_the_model_says(drafting):
    tokens = drafting.graph.search(tf.constant(TEXTS[:20])).token_ids[:, 0].numpy()
    source = drafting.graph.codec.encode_sources(tf.constant(TEXTS[:20])).token_ids.to_tensor()
    target = tf.constant(np.concatenate([np.full((20, 1), 2), tokens[:, :-1]], axis=1), tf.int32)
    first, *_ = drafting_model(drafting.model, drafting.graph.drafter)({"source": source, "target": target})
    assert np.mean((np.argmax(first, axis=-1) == tokens)[tokens > 0]) > 0.5


def test_a_saved_model_drafts_too(drafting, plain, tmp_path):
    session = SavedModelSession(export_servable(drafting, tmp_path, signatures=["translate"], verified=False))
    outputs = session("translate", {"text": TEXTS[:8]})
    session.close()
    assert [text.decode() for text in outputs["text"]] == plain(TEXTS[:8])


def test_sampling_and_beams_do_without_it(model_dir, drafting, plain):
    assert Translator.load(model_dir, DecodingConfig(beam_size=2)).graph.drafter is None
    sampling = Sampling(seed=3)
    assert drafting.translate(TEXTS[:4], sampling=sampling) == plain.translate(TEXTS[:4], sampling=sampling)


def test_a_drafter_of_other_weights_is_used_with_a_warning(model_dir, plain, tmp_path, caplog):
    shutil.copytree(model_dir.path, tmp_path / "model")
    with np.load(tmp_path / "model/drafter.npz") as arrays:
        other = {**arrays, "model": np.array("0" * 64)}
    (tmp_path / "model/drafter.npz.sha256").unlink()
    np.savez(tmp_path / "model/drafter.npz", **other)
    translator = Translator.load(tmp_path / "model", GREEDY)
    assert "trained for other weights of the model" in caplog.text
    assert translator(TEXTS[:4]) == plain(TEXTS[:4])


def test_a_damaged_drafter_is_refused(model_dir, tmp_path):
    shutil.copytree(model_dir.path, tmp_path / "model")
    path = tmp_path / "model/drafter.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedFileError, match=r"drafter\.npz"):
        Translator.load(tmp_path / "model", GREEDY)
