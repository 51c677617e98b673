"""The server to try a model with, on its port: its page, what the page asks, REST, limits, and the
command."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import InvalidFileError
from keras_transformer.export.servable import graph_of
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.serving.server import (
    MAX_BYTES,
    MAX_CONNECTIONS,
    MAX_WAITING,
    SMALL_BYTES,
    RestApi,
    ServedFunction,
    load_servable,
    make_server,
)

NOT_LOCAL = "this server only accepts requests to localhost, and none from other sites"
TEXTS = ["Anna sees a tree.", "the dog buys two apples.", "", "🐶 כלב"]


@contextlib.contextmanager
def serving(api):
    """Gives the port of a server."""
    with make_server(api, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def graphs_of(translator):
    """The functions of all signatures; `serving_default` and `translate` are one."""
    graphs = {
        signature.function: graph_of(signature, translator.graph)
        for signature in SIGNATURES.values()
    }
    return {name: graphs[signature.function] for name, signature in SIGNATURES.items()}


def running(graphs):
    """Gives the port of a server of a translator's functions."""
    return serving(
        RestApi(
            "tiny",
            {name: ServedFunction(SIGNATURES[name].inputs, graphs[name]) for name in graphs},
            8,
        )
    )


@pytest.fixture(scope="module")
def graphs(translator):
    return graphs_of(translator)


@pytest.fixture(scope="module")
def port(graphs):
    with running(graphs) as port:
        yield port


def ask(port, method, path, body=None, **headers):
    """The status, the headers and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        is_json = answer.headers["Content-Type"] == "application/json"
        return answer.status, answer.headers, json.loads(content) if is_json else content.decode()
    finally:
        connection.close()


def test_the_page_fetches_from_its_own_server_alone(port):
    status, headers, page = ask(port, "GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'; connect-src 'self'; img-src data:;" in page
    assert re.findall(r"""(?:src|href|action)=["']?([^"' >]*)""", page) == ["data:,"]
    assert re.findall(r"fetch\((.*?),", page) == ["url"] and re.findall(r"url = (.*?)\$", page) == [
        "`/v1/models/"
    ]
    assert '<main data-model="tiny">' in page
    for word in ("http:", "https:", "url(", "@import", "import(", "innerHTML"):
        assert word not in page


def test_a_name_is_written_as_in_addresses():
    with make_server(RestApi("tiny", {}, 1), 0) as server:
        # It listens to this machine alone.
        assert server.server_address[0] == "127.0.0.1"
    with serving(RestApi('a "b" & é', {}, 1)) as port:
        assert '<main data-model="a &quot;b&quot; &amp; é">' in ask(port, "GET", "/")[2]
        status, _, answer = ask(port, "GET", "/v1/models/a%20%22b%22%20%26%20%C3%A9")
        assert status == 200 and answer["model_version_status"][0]["state"] == "AVAILABLE"


@pytest.mark.slow
def test_rest_answers_as_the_servable_does(port, servable, tmp_path):
    shutil.copytree(servable, tmp_path / "tiny" / "7")
    (tmp_path / "tiny" / "6").mkdir()
    served = load_servable(tmp_path / "tiny")
    of_version = load_servable(tmp_path / "tiny" / "7")
    assert (served.name, served.version) == (of_version.name, of_version.version) == ("tiny", 7)
    assert set(served.signatures) == set(SIGNATURES)
    expected = served.signatures["serving_default"].function(text=tf.constant(TEXTS))
    texts = [text.decode() for text in expected["text"].numpy()]
    path = "/v1/models/tiny/versions/1:predict"
    status, _, rows = ask(port, "POST", path, json.dumps({"instances": TEXTS}))
    assert status == 200
    assert [row["text"] for row in rows["predictions"]] == texts
    scores = [row["score"] for row in rows["predictions"]]
    np.testing.assert_allclose(scores, expected["score"].numpy(), atol=1e-4)
    _, _, columns = ask(port, "POST", path, json.dumps({"inputs": {"text": TEXTS}}))
    assert columns["outputs"]["text"] == texts and columns["outputs"]["score"] == scores

    # The SavedModel itself can be served.
    with serving(served) as own_port:
        assert ask(own_port, "POST", path, "{}")[0] == 404
        _, _, own_rows = ask(
            own_port, "POST", path.replace("1:", "7:"), json.dumps({"instances": TEXTS})
        )
        assert [row["text"] for row in own_rows["predictions"]] == texts
        request = {
            "signature_name": "align",
            "instances": [{"source": TEXTS[0], "target": texts[0]}],
        }
        received, expected = (
            ask(server_port, "POST", "/v1/models/tiny:predict", json.dumps(request))[2][
                "predictions"
            ][0]
            for server_port in (own_port, port)
        )
        assert (
            received["target_token"] == expected["target_token"]
            and received["position"] == expected["position"]
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
def test_every_signature_answers_in_both_formats_as_its_function(name, port, graphs):
    inputs = SIGNATURES[name].example(TEXTS)
    expected = graphs[name](
        **{
            key: tf.constant(inputs[key], spec.dtype)
            for key, spec in SIGNATURES[name].inputs.items()
        }
    )
    request = {"signature_name": name, "inputs": inputs}
    status, _, columns = ask(port, "POST", "/v1/models/tiny:predict", json.dumps(request))
    assert status == 200, columns
    outputs = (
        columns["outputs"] if len(expected) > 1 else {next(iter(expected)): columns["outputs"]}
    )
    assert set(outputs) == set(expected)
    for key, tensor in expected.items():
        array = tensor.numpy()
        if array.dtype.kind == "O":
            assert (
                outputs[key]
                == np.vectorize(lambda text: text.decode("utf-8", "replace"), [object])(
                    array
                ).tolist()
            )
        else:
            np.testing.assert_allclose(outputs[key], array, rtol=1e-5, atol=1e-5)
    instances = [dict(zip(inputs, row)) for row in zip(*inputs.values())]
    request = {"signature_name": name, "instances": instances}
    _, _, rows = ask(port, "POST", "/v1/models/tiny:predict", json.dumps(request))
    rows = (
        rows["predictions"]
        if len(expected) > 1
        else [{next(iter(expected)): row} for row in rows["predictions"]]
    )
    assert rows == [dict(zip(outputs, row)) for row in zip(*outputs.values())]


@pytest.mark.parametrize(
    "method, path, body, headers, status, message",
    [
        ("GET", "/", None, {"Host": "example.com"}, 403, NOT_LOCAL),
        (
            "POST",
            "/v1/",
            "{}",
            {"Host": "localhost.example.com:8501"},
            403,
            NOT_LOCAL,
        ),
        ("GET", "/", None, {"Host": "["}, 403, NOT_LOCAL),
        (
            "POST",
            "/v1/",
            "{}",
            {"Origin": "http://example.com"},
            403,
            NOT_LOCAL,
        ),
        (
            "POST",
            "/v1/",
            "{}",
            {"Sec-Fetch-Site": "cross-site"},
            403,
            NOT_LOCAL,
        ),
        ("GET", "/x", None, {}, 404, "Not Found"),
        ("POST", "/x", "{}", {}, 404, "Not Found"),
        ("POST", "/v1/", "", {"Content-Length": "x"}, 411, "a request must have a Content-Length"),
        (
            "POST",
            "/v1/",
            "",
            {"Content-Length": str(MAX_BYTES + 1)},
            413,
            "at most 1,048,576 bytes",
        ),
        ("POST", "/v1/", "", {"Content-Length": "9" * 5000}, 413, "at most 1,048,576 bytes"),
        # More than fits into the buffers of a connection.
        ("POST", "/v1/", bytearray(2**25), {}, 413, "at most 1,048,576 bytes"),
        (
            "POST",
            "/v1/models/tiny:predict",
            '{"instances": [1]}',
            {},
            400,
            "text must be string of shape",
        ),
        ("POST", "/v1/models/x:predict", "{}", {}, 404, "this server has /v1/models/tiny:predict"),
        ("GET", "/v1/models/x", None, {}, 404, "this server has /v1/models/tiny, version 1"),
        ("GET", "/v1/", None, {}, 404, "this server has /v1/models/tiny, version 1"),
    ],
)
def test_what_is_refused(port, capfd, method, path, body, headers, status, message):
    answered, _, content = ask(port, method, path, body, **headers)
    assert answered == status and message in content["error"]
    assert capfd.readouterr().err == ""


def test_what_fails_is_answered_and_a_client_that_is_gone_is_not_reported(capfd):
    def fail(text):
        raise ZeroDivisionError

    with serving(
        RestApi(
            "x",
            {"serving_default": ServedFunction({"text": tf.TensorSpec([None], tf.string)}, fail)},
            1,
        )
    ) as port:
        request = json.dumps({"instances": ["a"]})
        answer = ask(port, "POST", "/v1/models/x:predict", request)
        assert (answer[0], answer[2]) == (500, {"error": "the server failed: ZeroDivisionError"})
        capfd.readouterr()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(
                b"POST /v1/models/x:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                b"9\r\n\r\n"
            )
            # Closing it resets the connection.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # It is answered after the other connection has ended or failed.
        assert ask(port, "GET", "/v1/models/x")[0] == 200
    assert capfd.readouterr().err == ""


def api_of(function):
    """The REST API of a function of texts."""
    inputs = {"text": tf.TensorSpec([None], tf.string)}
    return RestApi("x", {"serving_default": ServedFunction(inputs, function)}, 8)


@contextlib.contextmanager
def blocked_server():
    """Gives the port of a server that answers large requests when an event is set, and the
    event."""
    released = threading.Event()

    def answer(text):
        if len(text.numpy()[0]) > SMALL_BYTES:
            released.wait(60)
        return {"text": text}

    with serving(api_of(answer)) as port:
        try:
            yield port, released
        finally:
            released.set()


def in_threads(port, requests):
    """Asks in threads, which add their answers to the list that is returned."""
    answers = []
    threads = [
        threading.Thread(
            target=lambda body: answers.append(ask(port, "POST", "/v1/models/x:predict", body)),
            args=(json.dumps({"instances": [text]}),),
        )
        for text in requests
    ]
    for thread in threads:
        thread.start()
    return answers, threads


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("still waiting")


def test_a_small_request_does_not_wait_for_a_large_one():
    with blocked_server() as (port, released):
        answers, threads = in_threads(port, ["a" * (SMALL_BYTES + 1)])
        small = ask(port, "POST", "/v1/models/x:predict", json.dumps({"instances": ["a"]}))
        assert small[0] == 200 and small[2] == {"predictions": ["a"]} and answers == []
        assert ask(port, "GET", "/v1/models/x")[0] == 200
        released.set()
        for thread in threads:
            thread.join()
        assert answers[0][0] == 200


def test_too_many_waiting_requests_are_told_to_come_again_later():
    with blocked_server() as (port, released):
        answers, threads = in_threads(port, ["a" * (SMALL_BYTES + 1)] * (MAX_WAITING + 4))
        wait_until(lambda: len(answers) == 3)
        released.set()
        for thread in threads:
            thread.join()
    refused = [answer for answer in answers if answer[0] != 200]
    assert len(refused) == 3
    for status, headers, content in refused:
        assert (status, headers["Retry-After"]) == (503, "1")
        error = f"the server is busy: {MAX_WAITING} requests are already waiting; try again later"
        assert content == {"error": error}


def test_connections_are_limited():
    with serving(api_of(lambda text: {"text": text})) as port, contextlib.ExitStack() as stack:
        before = threading.active_count()
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(MAX_CONNECTIONS)
        ]
        wait_until(lambda: threading.active_count() == before + MAX_CONNECTIONS)
        status, headers, _ = ask(port, "GET", "/v1/models/x")
        assert (status, headers["Retry-After"]) == (503, "1")
        assert threading.active_count() == before + MAX_CONNECTIONS
        idle[0].close()
        wait_until(lambda: ask(port, "GET", "/v1/models/x")[0] == 200)


def test_many_numbers_are_checked_quickly():
    inputs = {"token_id": tf.TensorSpec([None, None], tf.int32)}
    function = lambda token_id: {"sum": tf.reduce_sum(token_id, axis=1)}
    api = RestApi("x", {"serving_default": ServedFunction(inputs, function)}, 8)
    body = json.dumps({"inputs": [[1] * 300_000]}).encode()
    begin = time.process_time()
    assert api.post("/v1/models/x:predict", body) == {"outputs": [300_000]}
    # TensorFlow was asked for the smallest and the largest number for each of them: 5 s.
    assert time.process_time() - begin < 2


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(tiny_model_dir):
    arguments = [
        "serve",
        "--model-dir",
        str(tiny_model_dir),
        "--port",
        "0",
        "--precision",
        "float32",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "keras_transformer", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # As the command does by itself; JAX, which other tests import, sets another.
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        text=True,
        # A shell lets the programs that it starts in the background ignore SIGINT, and so would
        # those that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        line = process.stdout.readline()
        received = re.fullmatch(
            r"http://127\.0\.0\.1:(\d+)/ \(web page\), (\S+)/v1/models/tiny:predict \(REST API\)\n",
            line,
        )
        assert received, process.stderr.read()
        body = json.dumps({"instances": TEXTS[:1]})
        _, _, answer = ask(int(received[1]), "POST", "/v1/models/tiny:predict", body)
        assert answer["predictions"][0]["text"] == "Anna hat einen Baum, sieht!"
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=600)
    assert process.returncode == 130 and re.fullmatch(r"device: .+\n", said)


def test_the_address_of_a_model_is_encoded():
    # A directory of this name, which is not UTF-8, may hold a model.
    name = "en de?#%/ü\udce9"
    api = RestApi(name, {})
    assert api.url_path == "/v1/models/en%20de%3F%23%25%2F%C3%BC%E9"
    with serving(api) as port:
        status, _, answer = ask(port, "GET", api.url_path)
        assert status == 200 and answer["model_version_status"][0]["state"] == "AVAILABLE"
        status, _, answer = ask(port, "GET", "/v1/models/another")
        assert status == 404 and "this server has /v1/models/en de?#%/ü" in answer["error"]


def test_a_path_that_tensorflow_reads_as_a_pattern_is_refused(tmp_path, fails, monkeypatch):
    (tmp_path / "a[b]" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a[b]")
    message = fails("serve", "--servable", "1")
    rule = "--servable must be a path without any of * ? [ \\; received"
    assert (
        message == f"keras-transformer serve: error: {rule} --servable='{tmp_path / 'a[b]' / '1'}'"
    )


def save(path, **functions):
    """Writes a SavedModel with a variable and some signatures."""
    module = tf.Module()
    module.variable = tf.Variable([1, 2])
    tf.saved_model.save(
        module,
        str(path),
        {
            name: tf.function(lambda x: {"x": x + 1}).get_concrete_function(spec)
            for name, spec in functions.items()
        },
    )


@pytest.mark.parametrize("name", ["variables.data-00000-of-00001", "variables.index"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "zeros", "missing", "directory"])
def test_damaged_variables_of_a_servable_are_named(name, damage, tmp_path, fails):
    save(tmp_path / "1", serving_default=tf.TensorSpec([None], tf.int32, "x"))
    path = tmp_path / "1" / "variables" / name
    content = path.read_bytes()
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage != "missing":
        damaged = {"empty": b"", "truncated": content[: len(content) // 2]}
        path.write_bytes(damaged.get(damage, bytes(len(content))))
    message = fails("serve", "--servable", tmp_path)
    begin = f"keras-transformer serve: error: {tmp_path / '1'}: the SavedModel cannot be loaded: "
    assert message.startswith(begin)


def test_a_servable_of_other_inputs_is_refused(tmp_path):
    save(tmp_path / "1")
    save(tmp_path / "2", serving_default=tf.TensorSpec([None], tf.float32, "x"))
    save(tmp_path / "3", serving_default=tf.TensorSpec([], tf.int32, "x"))
    for version, problem in (
        (1, "the SavedModel has no signatures"),
        (2, "must be rows of texts or of integers; it is float32 of shape (None,)"),
        (3, "must be rows of texts or of integers; it is int32 of shape ()"),
    ):
        with pytest.raises(InvalidFileError, match=re.escape(problem)):
            load_servable(tmp_path / str(version))


@pytest.mark.slow
def test_mistakes_are_named(tiny_model_dir, tmp_path, fails):
    def refused(*options):
        return fails("serve", *options).removeprefix("keras-transformer serve: error: ")

    either = "give either --model-dir or --servable"
    assert either in refused() and either in refused(
        "--model-dir", tmp_path, "--servable", tmp_path
    )
    options = (
        "--beam-size, --length-penalty, --precision, --no-shortlist, --tag and --terms are "
        "for --model-dir"
    )
    assert options in refused("--servable", tmp_path, "--beam-size", 2)
    assert "no saved_model.pb here or in a folder" in refused("--servable", tmp_path)
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"damaged")
    assert refused("--servable", tmp_path).startswith(
        f"{tmp_path / '3'}: the SavedModel cannot be loaded: "
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refused("--model-dir", tiny_model_dir, "--port", port, "--precision", "float32")
        assert message == f"--port {port}: Address already in use"
