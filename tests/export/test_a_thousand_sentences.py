"""A thousand sentences through every signature: by gRPC, REST and the C API, against the Python
API."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from fresh_process import run_python
from test_signatures import inputs_of, post, predict, rows_of, server, strings  # noqa: F401

from examples.corpus import generate
from keras_transformer.export.signatures import SIGNATURES

pytestmark = pytest.mark.long

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
PAIRS = generate(1000, seed=24)
TEXTS_PER_REQUEST = 50

# Reads requests and writes answers, both as JSON; in a process without TensorFlow's Python.
C_PROCESS = """
import json, sys
sys.path.insert(0, sys.argv[2] + "/tests")
from c_api import SavedModel
model = SavedModel(sys.argv[1])
def in_utf8(values):
    return [value.encode() if isinstance(value, str) else value for value in values]
for name, inputs in json.load(sys.stdin):
    answer = model.run(name, {key: in_utf8(values) for key, values in inputs.items()})
    print(json.dumps(answer, default=bytes.decode))
assert "tensorflow" not in sys.modules and "numpy" not in sys.modules
"""


def requests_of(name, translator):
    """The inputs of each request by name, as lists."""
    for begin in range(0, len(PAIRS), TEXTS_PER_REQUEST):
        rows = inputs_of(name, PAIRS[begin : begin + TEXTS_PER_REQUEST], translator)
        yield {key: [row[key] for row in rows] for key in rows[0]}


def python_answer(
    translator, name, text=(), prefix=None, source=(), target=(), token_id=(), max_length=()
):
    """What the Python API answers, as a row for each text."""
    if name == "score":
        results = translator.score_tokens(source, target)
        return {"log_prob": results.log_probs, "token_log_prob": results.token_log_probs}
    if name == "align":
        results = translator.align(source, target)
        return {
            "source_token": [result.source for result in results],
            "target_token": [result.target for result in results],
            "position": [result.positions for result in results],
            "attention": [result.attention for result in results],
        }
    if name == "translate_document":
        texts, was_cut = zip(*translator.translate_document(text))
        return {"text": texts, "truncated": was_cut}
    if name == "tokenize":
        return {"token": translator.tokenize(text), "token_id": translator.token_ids(text)}
    if name == "detokenize":
        return {"text": strings(translator.detokenize(token_id).numpy())}
    if name == "translate_tokens":
        found = tf.function(translator.graph.search_token_ids)(tf.constant(token_id, tf.int32))
        return {"token_id": found.token_ids[:, 0].numpy(), "score": found.scores[:, 0].numpy()}
    if name == "encode":
        return {"embedding": translator.encode(text)}
    results = translator.translate(text, 4 if name == "translate_n_best" else 1, prefixes=prefix)
    hypotheses = [
        result.hypotheses if name == "translate_n_best" else result.hypotheses[0]
        for result in results
    ]
    columns = [
        list(zip(*result)) if name == "translate_n_best" else result for result in hypotheses
    ]
    answer = {key: [column[i] for column in columns] for i, key in enumerate(("text", "score"))}
    return {**answer, "source_length": [result.source_length for result in results]}


def assert_same(answer, expected):
    """What is expected of a text may be without padding."""
    for key, rows in expected.items():
        assert len(answer[key]) == len(rows), key
        for results, row in zip(answer[key], rows):
            results, row = np.asarray(results), np.asarray(row)
            results = results[tuple(map(slice, row.shape))] if row.ndim else results
            if row.dtype.kind == "f":
                np.testing.assert_allclose(results, row, rtol=1e-4, atol=1e-4, err_msg=key)
            else:
                assert results.tolist() == row.tolist(), key


def decoded(outputs):
    return {
        key: strings(array) if array.dtype == object else array for key, array in outputs.items()
    }


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_client_gets_the_answers_of_the_python_api(
    predict,  # noqa: F811
    server,  # noqa: F811
    servable,
    translator,
    name,
):
    requests = list(requests_of(name, translator))
    answers = [decoded(predict(name, **inputs)) for inputs in requests]
    for inputs, answer in zip(requests, answers, strict=True):
        assert_same(answer, python_answer(translator, name, **inputs))
    assert sum(len(next(iter(answer.values()))) for answer in answers) == 1000
    in_json = json.dumps([(name, inputs) for inputs in requests])
    printed = run_python("-c", C_PROCESS, servable, CHECKOUT, input=in_json)
    for line, answer in zip(printed.splitlines(), answers, strict=True):
        assert_same(json.loads(line), answer)
    for inputs, answer in zip(requests, answers):
        rows = rows_of(inputs)
        predictions = post(server, {"signature_name": name, "instances": rows})["predictions"]
        # The only output has no name.
        keys = list(answer) if len(answer) > 1 else [None]
        columns = {key: [row[key] if key else row for row in predictions] for key in keys}
        assert_same(dict(zip(answer, columns.values())), answer)
