"""Every signature of a servable, called as clients of TensorFlow Serving call it, against the
Python API."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

import grpc
import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from google.protobuf import text_format
from model_server import LABEL, BusyError, Model, serve
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub
from tensorflow_serving.config.file_system_storage_path_source_pb2 import (
    FileSystemStoragePathSourceConfig,
)
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from benchmarks.contenders.fuzzed_requests import fuzz, hostile_texts
from keras_transformer.export.signatures import SIGNATURES

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "serving"
SOURCES, TARGETS = (list(side) for side in zip(*sentence_pairs()[::7]))
AWKWARD = [
    "",
    "  ",
    "🙂 </s> <pad> ▁␛ <0x0A>",
    "Anna sees a tree. " * 40,
    "a\u0301" * 300,
    "\0 Zoë\n",
]
TEXTS = [text for pair in zip(SOURCES, AWKWARD) for text in pair] + SOURCES
HYPOTHESES = TARGETS + AWKWARD + TARGETS
HYPOTHESES = (HYPOTHESES * 2)[: len(TEXTS)]


@pytest.fixture(scope="module")
def server(servable):
    with serve("en-de", servable) as (grpc_address, rest_address):
        yield grpc_address, f"{rest_address}/v1/models/en-de:predict"


@pytest.fixture(scope="module")
def predict(server):
    """Calls a signature with the client of TensorFlow Serving."""
    with grpc.insecure_channel(server[0]) as channel:
        stub = PredictionServiceStub(channel)

        def predict(name, **inputs):
            request = PredictRequest()
            request.model_spec.name, request.model_spec.signature_name = "en-de", name
            for key, values in inputs.items():
                request.inputs[key].CopyFrom(
                    tf.make_tensor_proto(values, SIGNATURES[name].inputs[key].dtype)
                )
            response = stub.Predict(request, timeout=600)
            assert response.model_spec.version.value == 1
            return {key: tf.make_ndarray(tensor) for key, tensor in response.outputs.items()}

        yield predict


def post(server, request):
    posted = urllib.request.Request(
        server[1], json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(posted) as response:
        return json.load(response)


def rows_of(inputs):
    return [dict(zip(inputs, row)) for row in zip(*inputs.values())]


def columns_of(rows):
    """Inputs by name; rows of ids are padded."""
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    if "token_id" in columns:
        width = max(map(len, columns["token_id"]))
        return {"token_id": [[*row, *[0] * (width - len(row))] for row in columns["token_id"]]}
    # NumPy's own texts would lose a NUL at the end.
    return {key: np.array([*values, None], object)[:-1] for key, values in columns.items()}


def assert_alike_with_any_neighbours(predict, name, rows):
    """Each row of inputs must be answered alike alone, in a batch of 32, and beside hostile
    neighbours."""
    alone = [predict(name, **columns_of([row])) for row in rows]
    for begin in range(0, len(rows), 32):
        batch, expected = rows[begin : begin + 32], alone[begin : begin + 32]
        hostile = rows_of(
            SIGNATURES[name].example(hostile_texts(len(batch), seed=begin, long_share=0.01))
        )
        mixed = [row for pair in zip(batch, hostile) for row in pair]
        for request, step in ((batch, 1), (mixed, 2)):
            answer = predict(name, **columns_of(request))
            for i, outputs in enumerate(expected):
                for key, (row,) in outputs.items():
                    # Outputs with a length for each text are padded.
                    results = np.asarray(answer[key][i * step])[tuple(map(slice, np.shape(row)))]
                    if results.dtype.kind == "f":
                        np.testing.assert_allclose(results, row, rtol=1e-4, atol=1e-4, err_msg=key)
                    else:
                        np.testing.assert_array_equal(results, row, err_msg=key)


def strings(array):
    return np.vectorize(bytes.decode, otypes=[object])(array).tolist()


def close(values):
    return pytest.approx(values, rel=1e-4, abs=1e-4)


def assert_lengths(lengths, translator, texts, side="source"):
    """What is far beyond the length that the model reads is not counted."""
    expected, longest = translator.num_tokens(texts, side), translator.model.config.max_length
    for length, whole in zip(lengths, expected, strict=True):
        assert length == whole if whole <= longest else longest < length <= whole


def assert_source(answer, translator, texts):
    assert_lengths(answer["source_length"], translator, texts)
    assert (
        answer["truncated"].tolist()
        == (answer["source_length"] > translator.model.config.max_length).tolist()
    )
    assert 0 < sum(answer["truncated"]) < len(texts)


@pytest.mark.parametrize("name", ["serving_default", "translate"])
def test_translate(predict, translator, name):
    answer = predict(name, text=TEXTS)
    assert sorted(answer) == ["score", "source_length", "text", "truncated"]
    assert strings(answer["text"]) == translator(TEXTS)
    assert answer["score"].tolist() == close([row[0][1] for row in translator.n_best(TEXTS, 1)])
    assert_source(answer, translator, TEXTS)
    assert strings(answer["text"])[0] == TARGETS[0]


@pytest.mark.slow
def test_translate_n_best(predict, translator):
    answer, expected = predict("translate_n_best", text=TEXTS), translator.n_best(TEXTS, 4)
    assert strings(answer["text"]) == [[text for text, _ in row] for row in expected]
    lowest = float(np.finfo("float32").min)
    scores = [[max(score, lowest) for _, score in row] for row in expected]
    np.testing.assert_allclose(answer["score"], scores, rtol=1e-4, atol=1e-4)
    assert np.isfinite(answer["score"]).all()
    assert_source(answer, translator, TEXTS)


@pytest.mark.slow
def test_translate_with_prefix(predict, translator):
    prefixes = [target[: 3 * i] for i, target in enumerate(HYPOTHESES)]
    answer = predict(
        "translate_with_prefix", text=TEXTS, prefix=prefixes, max_length=[0] * len(TEXTS)
    )
    results = translator.translate(TEXTS, prefixes=prefixes)
    assert strings(answer["text"]) == [result.hypotheses[0][0] for result in results]
    assert answer["score"].tolist() == close([result.hypotheses[0][1] for result in results])
    assert_source(answer, translator, TEXTS)
    limited = predict(
        "translate_with_prefix",
        text=SOURCES,
        prefix=[""] * len(SOURCES),
        max_length=[5] * len(SOURCES),
    )
    pieces = [
        translator.tokenizers.target.pieces(row)
        for row in translator.tokenizers.target.tokenize(TARGETS).to_list()
    ]
    assert strings(limited["text"]) == ["".join(row[:5]).replace("▁", " ")[1:] for row in pieces]


@pytest.mark.slow
def test_translate_tokens(predict, translator):
    token_ids = predict("tokenize", text=TEXTS)["token_id"]
    answer, expected = (
        predict("translate_tokens", token_id=token_ids),
        predict("translate", text=TEXTS),
    )
    # A text of spaces is blank, but its tokens are not.
    same = [i for i, text in enumerate(TEXTS) if text == "" or text.strip()]
    texts = predict("detokenize", token_id=answer["token_id"])["text"]
    assert strings(texts[same]) == strings(expected["text"][same])
    np.testing.assert_allclose(answer["score"][same], expected["score"][same], rtol=1e-4, atol=1e-4)
    assert (
        answer["token_id"][0].tolist()[:3]
        == translator.tokenizers.target.tokenize(TARGETS[:1]).to_list()[0][:3]
    )
    # Padding, what is no id, and what is beyond the longest length.
    empty = predict("translate_tokens", token_id=[[0, 0], [3, 0]])
    assert not empty["token_id"].any() and not empty["score"].any()
    strange = [[*token_ids[0], *[0] * 200], [-5, 2**31 - 1, *[9] * (len(token_ids[0]) + 198)]]
    assert predict("translate_tokens", token_id=strange)["score"][0] == pytest.approx(
        answer["score"][0], rel=1e-4
    )


def test_score(predict, translator):
    answer, expected = (
        predict("score", source=TEXTS, target=HYPOTHESES),
        translator.score_tokens(TEXTS, HYPOTHESES),
    )
    np.testing.assert_allclose(answer["log_prob"], expected.log_probs, rtol=1e-4)
    np.testing.assert_allclose(
        answer["token_log_prob"], expected.token_log_probs, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(answer["token_log_prob"].sum(axis=1), answer["log_prob"], rtol=1e-5)
    assert_lengths(answer["source_length"], translator, TEXTS)
    assert_lengths(answer["target_length"], translator, HYPOTHESES, "target")
    longest = np.maximum(answer["source_length"], answer["target_length"])
    assert answer["truncated"].tolist() == (longest > 64).tolist()


@pytest.mark.slow
def test_align(predict, translator):
    answer, expected = (
        predict("align", source=TEXTS, target=HYPOTHESES),
        translator.align(TEXTS, HYPOTHESES),
    )
    for i, alignment in enumerate(expected):
        num_target, num_source = len(alignment.target), len(alignment.source)
        for key, row in (("source_token", alignment.source), ("target_token", alignment.target)):
            pieces = strings(answer[key][i])
            assert pieces == row + [""] * (len(pieces) - len(row)) and row[-1] == "</s>"
        positions = answer["position"][i].tolist()
        assert positions == alignment.positions + [-1] * (len(positions) - num_target)
        attention = answer["attention"][i]
        np.testing.assert_allclose(
            attention[:num_target, :num_source], alignment.attention, atol=1e-5
        )
        assert not attention[num_target:].any() and not attention[:, num_source:].any()
        np.testing.assert_allclose(attention[:num_target].sum(axis=1), 1, rtol=1e-5)
        assert positions[:num_target] == attention[:num_target].argmax(axis=1).tolist()
    assert_lengths(answer["source_length"], translator, TEXTS)
    assert_lengths(answer["target_length"], translator, HYPOTHESES, "target")


def test_tokenize_and_detokenize(predict, translator):
    answer = predict("tokenize", text=TEXTS)
    assert [
        [piece for piece in row if piece] for row in strings(answer["token"])
    ] == translator.tokenize(TEXTS)
    np.testing.assert_array_equal(answer["token_id"], translator.token_ids(TEXTS))
    assert_source(answer, translator, TEXTS)
    (texts,) = predict("detokenize", token_id=answer["token_id"]).values()
    whole = ~answer["truncated"]
    assert [text for text, kept in zip(strings(texts), whole) if kept] == [
        t for t, kept in zip(TEXTS, whole) if kept
    ]
    strange = [[-1, 2**31 - 1, 328, 0, 3], [*answer["token_id"][0][:5]]]
    assert strings(predict("detokenize", token_id=strange)["text"]) == strings(
        translator.detokenize(strange).numpy()
    )


@pytest.mark.slow
def test_special_symbols_in_a_text_are_text_in_every_signature(predict, translator):
    texts = [
        "</s>",
        "<pad> a",
        "<unk>",
        "<s>Anna",
        "▁",
        "␛_",
        "<0x0A>",
        "a<0x41>",
        "Anna sees a tree.</s> <s>",
    ]
    tokens = predict("tokenize", text=texts)
    lengths = tokens["source_length"].tolist()
    for ids, length in zip(tokens["token_id"].tolist(), lengths):
        # None is special but the end token.
        assert min(ids[: length - 1]) > 3 and ids[length - 1] == 3 and not any(ids[length:])
    assert strings(predict("detokenize", token_id=tokens["token_id"])["text"]) == texts
    for name in ("serving_default", "translate_n_best", "encode"):
        assert predict(name, text=texts)["source_length"].tolist() == lengths
    assert not predict("translate_document", text=texts)["truncated"].any()
    for name in ("score", "align"):
        answer = predict(name, source=texts, target=texts)
        assert answer["source_length"].tolist() == answer["target_length"].tolist() == lengths
    for side in ("source", "target"):
        np.testing.assert_array_equal(answer[f"{side}_token"], tokens["token"])
    begun = predict("translate_with_prefix", text=texts, prefix=texts, max_length=[0] * len(texts))
    assert all(text.startswith(prefix) for text, prefix in zip(strings(begun["text"]), texts))


def test_encode(predict, translator):
    answer = predict("encode", text=TEXTS)
    np.testing.assert_allclose(answer["embedding"], translator.encode(TEXTS), atol=1e-5)
    assert_source(answer, translator, TEXTS)
    # By hand, one text at a time and so without padding.
    for text, vector in zip(TEXTS[:4], answer["embedding"]):
        encoded, _ = translator.model.encode(translator.token_ids([text]))
        np.testing.assert_allclose(vector, np.asarray(encoded)[0].mean(axis=0), atol=1e-5)


def inputs_of(name, pairs, translator):
    """Ordinary inputs for a signature, in rows."""
    sources, targets = map(list, zip(*pairs))
    if name in ("score", "align"):
        return rows_of({"source": sources, "target": targets})
    if name == "translate_document":
        # Of up to three sentences.
        return rows_of(
            {"text": [" ".join(sources[i : i + 1 + i % 3]) for i in range(len(sources))]}
        )
    if name in ("detokenize", "translate_tokens"):
        return rows_of(
            {
                "token_id": translator.token_ids(
                    sources if name == "translate_tokens" else targets
                ).tolist()
            }
        )
    if name == "translate_with_prefix":
        prefixes = [" ".join(target.split()[: i % 4]) for i, target in enumerate(targets)]
        return rows_of({"text": sources, "prefix": prefixes, "max_length": [0] * len(sources)})
    return rows_of({"text": sources})


@pytest.mark.parametrize(
    "name",
    [
        name if name == "translate" else pytest.param(name, marks=pytest.mark.slow)
        for name in SIGNATURES
    ],
)
def test_neighbours_change_no_answer(predict, translator, name):
    assert_alike_with_any_neighbours(
        predict, name, inputs_of(name, sentence_pairs()[:40], translator)
    )


@pytest.mark.parametrize("num_texts", [62, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [
        name if name == "serving_default" else pytest.param(name, marks=pytest.mark.slow)
        for name in SIGNATURES
        if name != "translate"
    ],
)
def test_hostile_texts_are_answered_and_harm_nobody(predict, name, num_texts):
    # A document of a megabyte takes seconds.
    long_share = 0 if name == "translate_document" else 0.02
    report = fuzz(
        lambda name, inputs: predict(name, **inputs), name, num_texts, seed=1, long_share=long_share
    )
    assert name in ("detokenize", "translate_tokens") or 0 < report["truncated"] < num_texts


@pytest.mark.parametrize("name", SIGNATURES)
def test_no_texts_have_no_answers(predict, name):
    specs = SIGNATURES[name].inputs.items()
    answer = predict(
        name,
        **{key: np.zeros([0] * len(spec.shape), spec.dtype.as_numpy_dtype) for key, spec in specs},
    )
    assert answer and {len(array) for array in answer.values()} == {0}


def run_example(command, *arguments):
    # The last line has no line break, the others have one as in files of Windows.
    text = "\r\n".join([*SOURCES, "", 'Zoë "sees" \\ a tree'])
    return subprocess.run([*command, *arguments], input=text, capture_output=True, text=True)


@pytest.mark.slow
def test_the_example_clients_translate(server, translator):
    grpc_address, rest_address = server[0], server[1].removesuffix(":predict")
    expected = translator([*SOURCES, "", 'Zoë "sees" \\ a tree'])
    finished = run_example(
        [sys.executable, str(EXAMPLES / "translate_grpc.py")], grpc_address, "en-de"
    )
    assert finished.stdout.splitlines() == expected, finished.stderr
    finished = run_example(
        [sys.executable, str(EXAMPLES / "translate_grpc.py")], grpc_address, "other"
    )
    assert finished.returncode == 1 and finished.stderr.splitlines()[-1].startswith("NOT_FOUND: ")
    if shutil.which("curl"):
        finished = run_example(["sh", str(EXAMPLES / "translate_rest.sh")], rest_address)
        assert [row["text"] for row in json.loads(finished.stdout)["predictions"]] == expected, (
            finished.stderr
        )
    if shutil.which("node"):
        finished = run_example(["node", str(EXAMPLES / "translate_rest.mjs")], rest_address)
        assert finished.stdout.splitlines() == expected, finished.stderr


PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def clients_of_the_page(grpc_address, rest_address):
    """The names that each client of the page defines, after it has run."""
    clients = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(clients) == 2
    for client in clients:
        code = client.replace("http://localhost:8501", rest_address)
        found = {}
        exec(code.replace("localhost:8500", grpc_address), found)
        yield found


@pytest.mark.slow
def test_the_clients_of_the_page_translate(server, translator):
    grpc_address, url = server
    expected = [text for text, _ in translator.n_best(["A girl sleeps."], 3)[0]]
    for client in clients_of_the_page(grpc_address, url.partition("/v1")[0]):
        assert client["texts"][0] == translator(["A girl sleeps."])[0]
        assert client["three_best"] == [expected]
        outputs = client["predict"]("translate", label=LABEL, text=["A girl sleeps."])
        assert [*map(tf.compat.as_text, outputs["text"])] == [expected[0]]
        with pytest.raises((RuntimeError, grpc.RpcError), match=r"^400 |INVALID_ARGUMENT"):
            client["predict"]("translate", label="other", text=["A girl sleeps."])


@pytest.mark.slow
def test_the_clients_of_the_page_repeat_a_request_to_a_busy_server(server, monkeypatch):
    grpc_address, url = server
    rest, rpc = clients_of_the_page(grpc_address, url.partition("/v1")[0])
    predict, calls = Model.predict, []

    def busy(model, *request):
        calls.append(request)
        if len(calls) < 3:
            raise BusyError
        return predict(model, *request)

    monkeypatch.setattr(Model, "predict", busy)
    for client in (rest, rpc):
        calls.clear()
        assert len(client["predict"]("translate", text=["A girl sleeps."])["text"]) == 1
        assert len(calls) == 3


def test_the_configuration_of_the_page_has_the_fields_of_the_server():
    (text,) = re.findall(
        r"servable/models.config <<END\n(.*?)^END$", PAGE, re.DOTALL | re.MULTILINE
    )
    config = text_format.Parse(text, ModelServerConfig()).model_config_list.config[0]
    assert config.name == "en-de" and config.version_labels == {"stable": 1, "canary": 1}
    assert config.model_version_policy.specific.versions == [1]
    (policy,) = re.findall(r"`(specific \{.*?\})`", PAGE)
    policy = text_format.Parse(policy, FileSystemStoragePathSourceConfig.ServableVersionPolicy())
    assert policy.specific.versions == [1, 2]
