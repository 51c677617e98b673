"""`export --compile`: a SavedModel that compiles searches answers as one that does not."""

import concurrent.futures
import json
import logging
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from session_mode import SavedModelSession
from test_compiled_search import random_texts
from test_ctranslate2 import random_translator
from test_servable import read_warmup_requests

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.export.servable import XLA_FLAG, export_servable, graph_of
from keras_transformer.export.signatures import SIGNATURES, signatures_of
from keras_transformer.export.warmup import requests_that_compile
from keras_transformer.serving import server
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.translation import Translator, compiled_search
from keras_transformer.translation.executor import CompiledFunctions
from keras_transformer.translation.shapes import SearchShapes

SHORT = "Anna sees a tree."
LONG = "the dog buys two apples. Zoë paints the bridge. my sister sees a tree. Anna greets Zoë."


def test_answers_are_those_of_a_plain_search(compiled_servable, servable):
    sessions = [SavedModelSession(path) for path in (compiled_servable, servable)]
    for texts in ([SHORT], [LONG], [""], [SHORT, LONG, ""], []):
        answer, expected = (session("translate", {"text": texts}) for session in sessions)
        assert list(answer["text"]) == list(expected["text"])
        np.testing.assert_allclose(answer["score"], expected["score"], rtol=1e-4, atol=1e-5)
    for session in sessions:
        session.close()


def test_sixteen_clients_at_once_get_the_answers_of_one(compiled_servable):
    session = SavedModelSession(compiled_servable)
    requests = [[text] for text in random_texts(5, 48, most_words=24)]
    requests += [random_texts(6, number, most_words=8) for number in (2, 3, 5, 0)]

    def translations(texts):
        answer = session("translate", {"text": texts})
        return [list(answer["text"]), list(answer["score"])]

    expected = [translations(texts) for texts in requests]
    with concurrent.futures.ThreadPoolExecutor(16) as clients:
        for _ in range(3):
            assert list(clients.map(translations, requests)) == expected
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_compiled_search_runs_with_the_executor_for_low_latency(
    compiled_servable, tiny_model_dir, num_threads
):
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=num_threads, use_per_session_threads=True
    )
    config.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    session = SavedModelSession(compiled_servable, config)
    (text,) = session("translate", {"text": [SHORT]})["text"]
    assert [text.decode()] == Translator.load(tiny_model_dir)([SHORT])
    session.close()


def test_a_server_warms_up_each_shape(compiled_servable, tiny_model_dir):
    requests = [log.predict_log.request for log in read_warmup_requests(compiled_servable)]
    texts = [
        [text.decode() for text in request.inputs["text"].string_val]
        for request in requests
        if request.model_spec.signature_name == "translate"
    ]
    (text,) = texts[-1]
    assert Translator.load(tiny_model_dir).num_tokens([text])[0] == 16


def test_the_card_names_the_flag_of_the_server(compiled_servable):
    card = (compiled_servable / "assets.extra" / "README.md").read_text()
    (row,) = re.findall(r"\| Compiled searches \| (.*) \|", card)
    assert row.startswith("batch sizes 1, padded to 16 source tokens;")
    assert XLA_FLAG in row and "XLA compilation disabled" in row


def test_shapes_need_the_option(fails, tmp_path):
    options = ["export", "--model-dir", tmp_path, "--output", tmp_path / "out"]
    message = fails(*options, "--compile-lengths", 16)
    assert message.endswith("error: --compile-lengths needs --compile")
    message = fails(*options, "--compile", "--compile-batches", 0)
    assert "--compile-batches must be positive" in message
    message = fails("serve", "--model-dir", tmp_path, "--compile-batches", 2)
    assert message.endswith("error: --compile-batches needs --compile")
    message = fails("serve", "--servable", tmp_path, "--compile")
    assert "--compile is for --model-dir" in message


@pytest.mark.slow
def test_a_server_compiles_before_it_answers(
    compiled_servable, tiny_model_dir, monkeypatch, capsys
):
    apis = []

    def keep(api, port):
        apis.append(api)
        raise OSError("no server")

    def log_of_serve(*options):
        with pytest.raises(SystemExit):
            main(["serve", "--port", "0", *options])
        return capsys.readouterr().err

    monkeypatch.setattr(server, "make_server", keep)
    of_model_dir = ["--model-dir", str(tiny_model_dir), "--precision", "float32"]
    assert "compiled the search, with" in log_of_serve("--servable", str(compiled_servable))
    shapes = ["--compile", "--compile-lengths", "16"]
    assert "compiled the search, with" in log_of_serve(*of_model_dir, *shapes)
    assert "compiled" not in log_of_serve(*of_model_dir)
    request = json.dumps({"signature_name": "translate", "instances": [SHORT]}).encode()
    answers = [api.post(f"{api.url_path}:predict", request)["predictions"] for api in apis]
    (expected,) = Translator.load(tiny_model_dir)([SHORT])
    assert [rows[0]["text"] for rows in answers] == [expected] * 3


@pytest.mark.parametrize("damage", ["truncated", "zeros"])
def test_damaged_warm_up_requests_end_in_one_line(compiled_servable, fails, tmp_path, damage):
    shutil.copytree(compiled_servable, tmp_path / "1")
    path = tmp_path / "1" / "assets.extra" / "tf_serving_warmup_requests"
    content = path.read_bytes()
    path.write_bytes(content[:-5] if damage == "truncated" else bytes(len(content)))
    message = fails("serve", "--servable", tmp_path)
    problem = "the warm-up requests cannot be read; export the model again"
    assert message == f"keras-transformer serve: error: {path}: {problem}"


@pytest.fixture
def shapes_run(monkeypatch):
    """Collects the shapes of compiled searches, (batch size, length), instead of running them."""
    shapes = set()

    def record(shape):
        shapes.add(tuple(shape))
        return shape

    def search_nothing(self, n_best, function, inputs, weights):
        shape = tf.numpy_function(record, [tf.shape(inputs["source"])], tf.int32)
        batch, length = tf.unstack(tf.ensure_shape(shape, [2]))
        return tf.zeros([batch, n_best, length], tf.int32), tf.zeros([batch, n_best])

    monkeypatch.setattr(CompiledFunctions, "call", search_nothing)
    return shapes


@pytest.fixture(scope="module")
def tagged_model():
    texts = [text for pair in sentence_pairs() for text in pair]
    tokenizer = train_tokenizer(texts, "bpe", 340, tags=[">>de<<"])
    sizes = dict(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size)
    return random_translator(tokenizers=tokenizer, max_length=128, **sizes).model, tokenizer


@pytest.mark.parametrize(
    "name, tag",
    [
        ("translate", None),
        ("translate_document", None),
        ("translate_tokens", None),
        ("translate_with_tag", None),
        ("translate_with_tag", ">>de<<"),
    ],
)
def test_the_requests_of_each_signature_compile_each_shape(shapes_run, tagged_model, name, tag):
    translator = Translator(*tagged_model, DecodingConfig(tag=tag))
    shapes = SearchShapes((16, 24, 100), (1, 2, 3)).up_to(128)
    signature = signatures_of(translator)[name]
    requests = requests_that_compile(translator, shapes, {name: signature})
    function = graph_of(signature, translator.graph.compiled(shapes))
    for inputs in requests[name]:
        function(**inputs)
    assert shapes_run == {(batch, length) for batch in (1, 2, 3) for length in (16, 24, 100)}


@pytest.mark.parametrize("most_positions, is_compiled", [(3 * 66, True), (3 * 66 - 1, False)])
def test_a_batch_that_would_be_divided_in_a_full_shape_is_not_compiled(
    shapes_run, tagged_model, monkeypatch, most_positions, is_compiled
):
    # Translations of 16 tokens have up to 50 more.
    monkeypatch.setattr(compiled_search, "POSITIONS_PER_BATCH", most_positions)
    translator = Translator(*tagged_model, DecodingConfig())
    translator.compile_search([16], [3])
    translator([SHORT] * 2)
    assert shapes_run == ({(3, 16)} if is_compiled else set())


def test_signatures_with_the_same_function_share_requests(translator):
    signatures = {"serving_default": SIGNATURES["translate"], **SIGNATURES}
    requests = requests_that_compile(translator, SearchShapes((16,)), signatures)
    assert "serving_default" in requests and "translate" not in requests


@pytest.mark.slow
def test_the_proof_compiles_each_shape(tiny_model_dir, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    translator = Translator.load(tiny_model_dir)
    names = ["translate", "translate_n_best", "translate_document", "translate_tokens"]
    path = export_servable(translator, tmp_path, signatures=names, shapes=SearchShapes())
    assert "verified" in caplog.text
    logs = read_warmup_requests(path)
    # The model reads no more than 64 tokens.
    assert len(logs) == len(names) * (4 + 5)


@pytest.mark.slow
def test_the_proof_of_a_compiled_search_in_bfloat16(tiny_model_dir, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    translator = Translator.load(tiny_model_dir, precision="bfloat16")
    shapes = SearchShapes(lengths=[16])
    path = export_servable(translator, tmp_path, signatures=["translate"], shapes=shapes)
    assert "verified with a tolerance of 0.02 for bfloat16" in caplog.text
    translator.compile_search(lengths=[16])
    session = SavedModelSession(path)
    answer = session("translate", {"text": [SHORT]})
    session.close()
    assert list(answer["text"]) == [translator([SHORT])[0].encode()]
