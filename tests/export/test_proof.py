"""The proof of an export: it refuses what is damaged, and accepts what rounding explains."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from tensorflow.core.protobuf import saved_model_pb2
from test_shortlist import random_shortlist

from keras_transformer.errors import VerificationError
from keras_transformer.export import proof
from keras_transformer.export.servable import Servable
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator


def wrong_weight(translator):
    kernel = translator.model.decoder.layers[0].feed_forward.hidden_dense.kernel
    values = kernel.numpy()
    values[3, 5] += 0.5
    return kernel.value, values


def exchanged_heads(translator):
    kernel = translator.model.decoder.layers[0].cross_attention.query_dense.kernel
    values = kernel.numpy()
    return kernel.value, np.roll(values, values.shape[1] // 2, axis=1)


def wrong_table(translator):
    table = translator.candidates.by_source
    return table, np.roll(table.numpy(), 1, axis=0)


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    plain = Translator.load(tiny_model_dir)
    shortlist = random_shortlist(plain.tokenizers.target.vocab_size)
    return Translator(plain.model, plain.tokenizers, plain.decoding, shortlist=shortlist)


def servable_of(translator, names):
    return Servable(translator, {name: SIGNATURES[name] for name in names})


@pytest.fixture(scope="module")
def servable(translator):
    return servable_of(translator, ["serving_default"])


def save(servable, path):
    tf.saved_model.save(servable, str(path), signatures=servable.functions)


def swap_tokenizer(path):
    """Puts the model of another tokenizer, with as many pieces, into a SavedModel."""
    texts = [text.swapcase() for pair in sentence_pairs() for text in pair]
    other = train_tokenizer(texts, "bpe", 328).file_content
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph = saved_model.meta_graphs[0].graph_def
    nodes = [
        *graph.node,
        *(node for function in graph.library.function for node in function.node_def),
    ]
    tokenizers = [node for node in nodes if node.op == "SentencepieceOp"]
    assert tokenizers
    for node in tokenizers:
        node.attr["model"].s = other
    file.write_bytes(saved_model.SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("names", [["serving_default"], [*SIGNATURES]])
def test_what_is_healthy_passes(translator, names, tmp_path, caplog):
    servable = servable_of(translator, names)
    save(servable, tmp_path)
    with caplog.at_level("INFO"):
        proof.verify(tmp_path, servable.functions)
    assert (
        "verified with a tolerance of 0.0001 for float32 (translator: CPU, SavedModel: CPU); "
        "0 values differed because of rounding" in caplog.text
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", [wrong_weight, exchanged_heads, wrong_table])
def test_what_is_damaged_is_refused(translator, servable, tmp_path, damage):
    variable, values = damage(translator)
    kept = variable.numpy()
    variable.assign(values)
    save(servable, tmp_path)
    variable.assign(kept)
    with pytest.raises(VerificationError) as refused:
        proof.verify(tmp_path, servable.functions)
    assert (
        str(refused.value).startswith("serving_default: ")
        and len(str(refused.value).splitlines()) <= 5
    )
    np.testing.assert_array_equal(variable.numpy(), kept)


@pytest.mark.slow
def test_what_is_damaged_is_refused_in_bfloat16(tiny_model_dir, tmp_path):
    translator = Translator.load(tiny_model_dir, precision="bfloat16")
    servable = servable_of(translator, ["serving_default"])
    save(servable, tmp_path / "healthy")
    proof.verify(tmp_path / "healthy", servable.functions, precision="bfloat16")
    variable, values = exchanged_heads(translator)
    kept = variable.numpy()
    variable.assign(values)
    save(servable, tmp_path / "damaged")
    variable.assign(kept)
    with pytest.raises(VerificationError, match="differ by more than rounding"):
        proof.verify(tmp_path / "damaged", servable.functions, precision="bfloat16")


@pytest.mark.slow
def test_a_swapped_tokenizer_is_refused(servable, tmp_path):
    save(servable, tmp_path)
    swap_tokenizer(tmp_path)
    with pytest.raises(
        VerificationError,
        match="serving_default: (text|source_length): .* differ by more than rounding",
    ):
        proof.verify(tmp_path, servable.functions)


@pytest.mark.parametrize("other, is_refused", [(1 + 2**-22, False), (1 + 2**-10, True)])
def test_a_close_choice_may_go_the_other_way(monkeypatch, other, is_refused):
    weights = [tf.Variable(1.0), tf.Variable(other)]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def choose(text):
        return {"text": tf.where(weights[0] > weights[1], text + b" first", text + b" second")}

    def run_session(path, asked, python):
        ((_, inputs),) = asked
        return "CPU", [{"text": (inputs["text"] + b" first").numpy()}]

    monkeypatch.setattr(proof, "_run_session", run_session)
    functions = {"serving_default": choose.get_concrete_function()}
    if not is_refused:
        return proof.verify(None, functions)
    with pytest.raises(VerificationError) as refused:
        proof.verify(None, functions)
    assert str(refused.value).splitlines() == [
        f"serving_default: text: {len(proof.TEXTS)} of {len(proof.TEXTS)} values differ by "
        "more than rounding, the first in text 1",
        "SavedModel: ' first'",
        "translator: ' second'",
        "compared with a tolerance of 0.0001 for float32 (translator: CPU, SavedModel: CPU)",
    ]
    assert [float(weight) for weight in weights] == [1.0, other]


@pytest.mark.parametrize(
    "num_answers, outputs, is_refused",
    [(2**16, ["text", "score"], False), (3, ["text", "score"], True), (2**16, ["score"], True)],
    ids=["ever new texts", "three texts", "ever new scores alone"],
)
def test_where_rounding_makes_ever_new_texts_any_is_accepted(
    monkeypatch, num_answers, outputs, is_refused
):
    weights = tf.Variable(np.random.default_rng(0).random(99, "float32"))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def loop(text):
        repetitions = tf.reduce_sum(tf.bitcast(weights, tf.int32) * tf.range(1, 100)) % num_answers
        scores = tf.fill(tf.shape(text), tf.cast(repetitions, "float32"))
        answers = {"text": text + tf.strings.as_string(repetitions), "score": scores}
        return {name: answers[name] for name in outputs}

    texts = [text + b" another" for text in proof.TEXTS]
    answer = {"text": np.array(texts, object), "score": np.full(len(texts), -1, "float32")}
    monkeypatch.setattr(proof, "_run_session", lambda *arguments: ("CPU", [answer]))
    functions = {"serving_default": loop.get_concrete_function()}
    with pytest.raises(VerificationError) if is_refused else contextlib.nullcontext():
        proof.verify(None, functions)


def test_a_request_is_repeated_with_more_and_more_of_the_weights_changed(monkeypatch):
    shares_changed = []

    class Same:
        variables = [tf.Variable(tf.ones(4096))]

        def __call__(self, text):
            is_changed = self.variables[0].numpy() != 1
            shares_changed.append(float(is_changed.mean()))
            return {"text": text}

    answer = {"text": np.array([text + b" another" for text in proof.TEXTS], object)}
    monkeypatch.setattr(proof, "_run_session", lambda *arguments: ("CPU", [answer]))
    with pytest.raises(VerificationError):
        proof.verify(None, {"serving_default": Same()})
    assert len(shares_changed) == 1 + 128
    assert shares_changed[0] == 0 < shares_changed[1] < 0.03
    # Two random units of a weight, each one up or down, cancel out for half of the weights.
    assert shares_changed[-1] == pytest.approx(0.5, abs=0.05)


def test_an_answer_is_not_awaited_for_ever(monkeypatch, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def same(text):
        return {"text": text}

    monkeypatch.setattr(proof, "_MAX_SECONDS", 0.01)
    with pytest.raises(
        VerificationError, match="the SavedModel has not answered after 0.01 seconds"
    ):
        proof.verify(tmp_path, {"serving_default": same.get_concrete_function()})


@pytest.mark.parametrize(
    "values, expected", [([b"a", b"b", b"a", b"c"], 2), ([2, 2, 2], 0), ([3, 1, 2], 3)]
)
def test_answers_like_no_other_are_counted(values, expected):
    assert proof._num_unique(np.array(values)[:, None]).tolist() == [expected]


def test_on_a_gpu_numbers_may_differ_by_what_tf32_rounds(monkeypatch):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def score(text):
        return {"score": tf.fill(tf.shape(text), 1.0)}

    functions = {"serving_default": score.get_concrete_function()}
    for device, error, precision in (("CPU", 2**-11, "bfloat16"), ("GPU", 2**-9, "float32")):
        answer = {"score": np.full(len(proof.TEXTS), 1 + error, "float32")}
        monkeypatch.setattr(proof, "_run_session", lambda *arguments: (device, [answer]))
        proof.verify(None, functions, precision=precision)
        answer["score"][3] = 1.1
        with pytest.raises(VerificationError, match="1 of .* values .*, the first in text 4"):
            proof.verify(None, functions, precision=precision)


def test_a_position_may_be_any_whose_attention_is_the_greatest_up_to_rounding():
    attention = np.array([[[0.40000, 0.40001, 0.19999], [0.1, 0.2, 0.7]]], "float32")
    expected = {"position": np.array([[1, 2]], "int32"), "attention": attention}
    for positions, differs in (
        ([0, 2], [0, 0]),
        ([2, 2], [1, 0]),
        ([1, 1], [0, 1]),
        ([3, -1], [1, 1]),
    ):
        answer = {**expected, "position": np.array([positions], "int32")}
        elements = proof._differences(answer, expected, proof._FLOAT32)
        assert (
            elements["position"].astype(int).tolist() == [differs]
            and not elements["attention"].any()
        )
