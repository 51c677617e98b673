"""TensorFlow Serving's REST API: what requests mean, what is answered, and what is refused."""

import base64
import json
from http import HTTPStatus

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.server import RequestError, RestApi, ServedFunction


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
def upper(text):
    return {
        "text": tf.strings.upper(text),
        "score": tf.cast(tf.strings.length(text), tf.float32) / 10,
    }


@tf.function(
    input_signature=[
        tf.TensorSpec([None], tf.string, "text"),
        tf.TensorSpec([None, 2], tf.int32, "number"),
    ]
)
def add(text, number):
    return {"sum": tf.reduce_sum(number, axis=1)}


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
def refuse(text):
    with tf.control_dependencies(
        [tf.debugging.Assert(False, [tf.strings.join(["no: ", text[0]])])]
    ):
        return {"text": tf.identity(text)}


def signature_of(function):
    """The signature that is a concrete function."""
    args, kwargs = function.structured_input_signature
    return ServedFunction({spec.name: spec for spec in (*args, *kwargs.values())}, function)


API = RestApi(
    "en-de",
    {
        "serving_default": signature_of(upper.get_concrete_function()),
        "add": signature_of(add.get_concrete_function()),
        "refuse": signature_of(refuse.get_concrete_function()),
    },
    max_rows=3,
)


def post(request, path="/v1/models/en-de:predict"):
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    return API.post(path, body)


def b64(text):
    return {"b64": base64.b64encode(text).decode()}


def test_rows_and_columns():
    rows = [{"score": 0.1, "text": "A"}, {"score": 0.2, "text": "BC"}]
    columns = {"score": [0.1, 0.2], "text": ["A", "BC"]}
    assert post({"instances": ["a", "bc"]}) == {"predictions": rows}
    assert post({"instances": [{"text": "a"}, {"text": b64(b"bc")}]}) == {"predictions": rows}
    assert post({"instances": [b64(b"a"), "bc"]}) == {"predictions": rows}
    assert post({"inputs": ["a", "bc"]}) == {"outputs": columns}
    assert post({"inputs": {"text": ["a", b64(b"bc")]}, "signature_name": ""}) == {
        "outputs": columns
    }
    assert post({"inputs": ["é"]}, "/v1/models/en-de/versions/1:predict")["outputs"]["text"] == [
        "é"
    ]
    assert post({"inputs": []}) == {"outputs": {"score": [], "text": []}}


def test_several_inputs_and_one_output():
    rows = [{"text": "a", "number": [1, 2]}, {"text": "b", "number": [3, 4]}]
    assert post({"signature_name": "add", "instances": rows}) == {"predictions": [3, 7]}
    columns = {"text": ["a", "b"], "number": [[1, 2], [3, 4]]}
    assert post({"signature_name": "add", "inputs": columns}) == {"outputs": [3, 7]}


def test_numbers_have_as_few_digits_as_float32_needs():
    (row,) = post({"instances": ["abc"]})["predictions"]
    assert json.dumps(row["score"]) == "0.3" and np.float32(row["score"]) == np.float32(3) / 10


def test_status_of_the_model():
    version = {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    assert (
        API.get("/v1/models/en-de")
        == API.get("/v1/models/en-de/versions/1")
        == {"model_version_status": [version]}
    )


TWO = {"signature_name": "add"}
TEXT = "text must be string of shape (None,); received "
NAME = "signature_name must be one of serving_default, add, refuse; received "
ROW = "every instance must have the keys text; received "


@pytest.mark.parametrize(
    "request_, message",
    [
        (b"", "the request is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"{", "the request is not JSON: Expecting property name enclosed in double quotes"),
        (b"[" * 100_000, "the request is not JSON: maximum recursion depth exceeded"),
        (b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", TEXT),
        (b"\xff", "the request is not JSON: 'utf-8' codec can't decode byte 0xff"),
        ([], "a request must have either instances or inputs"),
        ({}, "a request must have either instances or inputs"),
        ({"inputs": [], "instances": []}, "a request must have either instances or inputs"),
        ({"instances": "a"}, "instances must be a list with at least one row; received 'a'"),
        ({"instances": []}, "instances must be a list with at least one row; received []"),
        ({"instances": [1]}, f"{TEXT}[1]"),
        ({"instances": [None]}, f"{TEXT}[None]"),
        ({"instances": [True]}, f"{TEXT}[True]"),
        ({"instances": [{"b64": "é"}]}, f"{TEXT}[{{'b64': 'é'}}]"),
        (b'{"instances": ["\\ud800"]}', f"{TEXT}['\\ud800']"),
        ({"instances": ["a", {"text": "b"}]}, f"{ROW}'a'"),
        ({"instances": [{"x": "b"}]}, f"{ROW}{{'x': 'b'}}"),
        ({"instances": [{}]}, f"{ROW}{{}}"),
        ({"instances": ["a", ["b", "c"]]}, f"{TEXT}['a', ['b', 'c']]"),
        ({"instances": ["a", ["b"]]}, TEXT),
        ({"instances": [["a"]]}, TEXT),
        ({"instances": [["a", ["b"]]]}, TEXT),
        ({"instances": ["a"] * 4}, "a request must have at most 3 rows; received 4"),
        ({"inputs": "a"}, f"{TEXT}'a'"),
        ({"inputs": {"x": ["a"]}}, "inputs must have the keys text; received {'x': ['a']}"),
        ({"inputs": [["a"], ["b", "c"]]}, TEXT),
        ({"inputs": [["a"], "b"]}, TEXT),
        ({"inputs": ["a"], "signature_name": "x"}, f"{NAME}'x'"),
        ({"inputs": ["a"], "signature_name": [1]}, f"{NAME}[1]"),
        ({**TWO, "inputs": ["a"]}, "inputs must have the keys text, number; received ['a']"),
        (
            {**TWO, "instances": ["a"]},
            "every instance must have the keys text, number; received 'a'",
        ),
        (
            {**TWO, "inputs": {"text": ["a"], "number": [[1, 2.5]]}},
            "number must be int32 of shape (None, 2); received",
        ),
        (
            {**TWO, "inputs": {"text": ["a"], "number": [[1, True]]}},
            "number must be int32 of shape (None, 2); received",
        ),
        ({**TWO, "inputs": {"text": ["a"], "number": [[1, 2**31]]}}, "[[1, 2147483648]]"),
        (
            {**TWO, "inputs": {"text": ["a"], "number": [[1, 2], [3, 4]]}},
            "all inputs must have the same number of rows; received {'number': 2, 'text': 1}",
        ),
        (
            {"inputs": ["an assertion failed: "], "signature_name": "refuse"},
            "[no: an assertion failed: ]",
        ),
    ],
)
def test_a_request_that_does_not_fit_is_refused(request_, message):
    with pytest.raises(RequestError) as refused:
        post(request_)
    assert message in str(refused.value)
    assert refused.value.status == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    "method, path",
    [
        ("POST", "/v1/models/x:predict"),
        ("POST", "/v1/models/en-de/versions/2:predict"),
        ("POST", "/v1/models/en-de"),
        ("POST", "/v1/models/en-de:classify"),
        ("GET", f"/v1/models/en-de/versions/{'9' * 5000}"),
        ("GET", "/v1/models/x"),
        ("GET", "/v1/models/en-de:predict"),
    ],
)
def test_another_path_is_refused(method, path):
    with pytest.raises(
        RequestError, match="^this server has /v1/models/en-de(:predict)?, version 1; rec"
    ) as refused:
        post({"instances": ["a"]}, path) if method == "POST" else API.get(path)
    assert refused.value.status == HTTPStatus.NOT_FOUND and len(str(refused.value)) < 300
