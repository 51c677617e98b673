"""TensorFlow Serving's REST API: what requests mean, what is answered, and which errors there are."""

import base64
import json
from http import HTTPStatus

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.serving.rest import RequestError, RestApi, Signature


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
def upper(text):
    return {"text": tf.strings.upper(text), "score": tf.cast(tf.strings.length(text), tf.float32) / 10}


@tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text"), tf.TensorSpec([None, 2], tf.int32, "number")])
def add(text, number):
    return {"sum": tf.reduce_sum(number, axis=1)}


def signature_of(function):
    """The signature that is a concrete function, as those of a loaded SavedModel are."""
    args, kwargs = function.structured_input_signature
    return Signature({spec.name: spec for spec in (*args, *kwargs.values())}, function)


API = RestApi(
    "en-de",
    {"serving_default": signature_of(upper.get_concrete_function()), "add": signature_of(add.get_concrete_function())},
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
    assert post({"inputs": {"text": ["a", b64(b"bc")]}, "signature_name": ""}) == {"outputs": columns}
    assert post({"inputs": ["é"]}, "/v1/models/en-de/versions/1:predict")["outputs"]["text"] == ["é"]
    assert post({"inputs": []}) == {"outputs": {"score": [], "text": []}}


def test_several_inputs_and_one_output():
    rows = [{"text": "a", "number": [1, 2]}, {"text": "b", "number": [3, 4]}]
    assert post({"signature_name": "add", "instances": rows}) == {"predictions": [3, 7]}
    columns = {"text": ["a", "b"], "number": [[1, 2], [3, 4]]}
    assert post({"signature_name": "add", "inputs": columns}) == {"outputs": [3, 7]}


def test_a_saved_model_has_the_same_answers(tmp_path):
    module = tf.Module()
    module.upper = upper
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"serving_default": upper.get_concrete_function()})
    signatures = tf.saved_model.load(str(tmp_path / "m")).signatures
    api = RestApi("en-de", {name: signature_of(function) for name, function in signatures.items()}, max_rows=3)
    body = json.dumps({"instances": ["a", {"b64": "YmM="}]}).encode()
    assert api.post("/v1/models/en-de:predict", body) == post(body)

    # Numbers have as few digits as float32 needs.
    (row,) = post({"instances": ["abc"]})["predictions"]
    assert json.dumps(row["score"]) == "0.3" and np.float32(row["score"]) == np.float32(3) / 10


def test_status_of_the_model():
    version = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert API.get("/v1/models/en-de") == API.get("/v1/models/en-de/versions/1") == {"model_version_status": [version]}


ELEMENT = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
TWO = {"signature_name": "add"}


@pytest.mark.parametrize(
    "request_, message",
    [
        (b"", "JSON Parse error: The document is empty"),
        (b"{", "JSON Parse error: Invalid value. at offset: 1"),
        (b"[" * 100_000, "JSON Parse error: lists or objects are nested too deeply"),
        (
            b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}",
            "JSON Parse error: lists or objects are nested too deeply",
        ),
        (b"\xff", "JSON Parse error: Invalid encoding in string. at offset: 0"),
        ([], "JSON Value: [] Is not object"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"inputs": [], "instances": []}, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys"),
        ({"instances": "a"}, "Excepting 'instances' to be an list/array"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": [1]}, f"{ELEMENT}JSON Value: 1 Type: Number is not of expected type: string"),
        ({"instances": [None]}, f"{ELEMENT}JSON Value: null Type: Null is not of expected type: string"),
        ({"instances": [True]}, f"{ELEMENT}JSON Value: true Type: True is not of expected type: string"),
        ({"instances": [{"b64": "é"}]}, f"{ELEMENT}Unable to base64 decode"),
        (b'{"instances": ["\\ud800"]}', f"{ELEMENT}JSON Parse error: The surrogate pair in string is invalid."),
        ({"instances": ["a", {"text": "b"}]}, "Expecting value/list but got object at item 1 of input list"),
        ({"instances": [{"text": "b"}, "a"]}, "Expecting object but got list at item 1 of input list"),
        ({"instances": [{"x": "b"}]}, "key: x of 'instances' list. Error: INVALID_ARGUMENT: JSON object: does"),
        ({"instances": [{}]}, "JSON object: {} keys must be equal to: text"),
        ({"instances": ["a", ["b", "c"]]}, "Expecting tensor size: 1 but got: 2"),
        ({"instances": ["a", ["b"]]}, "Expecting shape [] but got: [1]"),
        ({"instances": [["a"]]}, "text must be of shape (None,); received (1, 1)"),
        ({"instances": [["a", ["b"]]]}, "Encountered list at unexpected level: 1 expected < 1"),
        ({"instances": ["a"] * 4}, "a request must have at most 3 rows; received 4"),
        ({"inputs": "a"}, "text must be of shape (None,); received ()"),
        ({"inputs": {"x": ["a"]}}, "Missing named input: text in 'inputs' object."),
        ({"inputs": [["a"], ["b", "c"]]}, "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
        ({"inputs": [["a"], "b"]}, 'JSON Value: "b" found at incorrect level: 2 in the JSON DOM. Expected at level: 2'),
        ({"inputs": ["a"], "signature_name": "x"}, 'Serving signature name: "x" not found in signature def'),
        ({"inputs": ["a"], "signature_name": 1}, "'signature_name' key must be a string value."),
        ({**TWO, "inputs": ["a"]}, "inputs is a plain value/list, but expecting an object as multiple input tensors"),
        ({**TWO, "instances": ["a"]}, "instances is a plain list, but expecting list of objects as multiple input"),
        ({**TWO, "inputs": {"text": ["a"], "number": [[1, 2.5]]}}, "2.5 Type: Number is not of expected type: int32"),
        ({**TWO, "inputs": {"text": ["a"], "number": [[1, 2**31]]}}, "Type: Number is not of expected type: int32"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(request_, message):
    with pytest.raises(RequestError) as refused:
        post(request_)
    assert message in str(refused.value)
    assert refused.value.status == HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    "method, path, message, status",
    [
        ("POST", "/v1/models/x:predict", "Servable not found for request: Latest(x)", 404),
        ("POST", "/v1/models/en-de/versions/2:predict", "Servable not found for request: Specific(en-de, 2)", 404),
        ("GET", f"/v1/models/en-de/versions/{'9' * 5000}", "Could not find any versions of model en-de", 404),
        ("POST", "/v1/models/en-de", "Malformed request: POST /v1/models/en-de", 400),
        ("POST", "/v1/models/en-de:classify", "Malformed request: POST /v1/models/en-de:classify", 400),
        ("GET", "/v1/models/x", "Could not find any versions of model x", 404),
        ("GET", "/v1/models/en-de:predict", "Malformed request: GET /v1/models/en-de:predict", 400),
    ],
)
def test_another_path_is_refused(method, path, message, status):
    with pytest.raises(RequestError) as refused:
        post({"instances": ["a"]}, path) if method == "POST" else API.get(path)
    assert (str(refused.value), refused.value.status) == (message, status)
