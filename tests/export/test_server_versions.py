"""The same SavedModels with several releases of TensorFlow, in session mode and by their
registries; see `make test-servers`."""

import base64
import json
import pathlib
from typing import NamedTuple

import pytest
import tensorflow as tf
from fresh_process import run_python
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework import op_def_registry
from test_a_thousand_sentences import C_PROCESS, assert_same, decoded
from test_shortlist import random_shortlist

from keras_transformer.config import DecodingConfig
from keras_transformer.config.values import SignatureName
from keras_transformer.export import servable
from keras_transformer.export.proof import TEXTS, verify
from keras_transformer.export.servable import export_servable, graph_of
from keras_transformer.export.signatures import SIGNATURES, Signature
from keras_transformer.translation import Translator
from keras_transformer.translation.shapes import SearchShapes

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
# That of 2.12 is there for its tensorflow-text alone.
ENVIRONMENTS = sorted(
    path.parent for path in CHECKOUT.glob(".venv-servers-*/installed") if "2.12" not in str(path)
)
# The TensorFlow of each release of TensorFlow Serving, and the tensorflow-text that it links by its
# workspace.bzl.
LINKED = {"2.16": "2.12", "2.17": "2.12", "2.18": "2.12", "2.19": "2.12", "2.20": "2.20"}


# Of servables whose graphs have operations that others lack, the signatures in which these are.
SEARCHES: tuple[SignatureName, ...] = ("translate_with_prefix", "translate_document")


def translator_and_signatures(name, model_dirs):
    tiny = model_dirs["tiny"]
    if name == "shortlist":
        plain = Translator.load(tiny)
        shortlist = random_shortlist(plain.tokenizers.target.vocab_size)
        return Translator(
            plain.model, plain.tokenizers, plain.decoding, shortlist=shortlist
        ), SEARCHES
    if name == "compiled":
        return Translator.load(tiny), ("translate", "translate_n_best", "translate_document")
    if name == "int8":
        return Translator.load(tiny, precision="int8-weights"), SEARCHES
    if name == "placeholders":
        return Translator.load(tiny, DecodingConfig(placeholders=True, keep=["Anna"])), (
            *SEARCHES,
            "score",
        )
    return Translator.load(model_dirs[name]), tuple(SIGNATURES)


class Saved(NamedTuple):
    """The path of a SavedModel, its translator and signatures, and requests that compile."""

    path: pathlib.Path
    translator: Translator
    signatures: dict[SignatureName, Signature]
    requests: dict[SignatureName, list[dict[str, tf.Tensor]]]


@pytest.fixture(
    scope="module", params=["tiny", "wordpiece", "shortlist", "int8", "placeholders", "compiled"]
)
def saved(request, model_dirs, tmp_path_factory):
    results = []
    translator, signatures = translator_and_signatures(request.param, model_dirs)
    shapes = SearchShapes((16,)) if request.param == "compiled" else None

    def keep(path, translator, signatures, requests):
        results.append((translator, signatures, requests))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(servable, "verify", keep)
        directory = tmp_path_factory.mktemp(request.param)
        path = export_servable(translator, directory, signatures=signatures, shapes=shapes)
    return Saved(path, *results[0])


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.name)
def test_every_signature_is_answered_alike(saved, environment):
    python = str(environment / "bin" / "python")
    version = (
        "from importlib.metadata import version as v; print(v('tensorflow'), v('tensorflow-text'))"
    )
    print(run_python("-c", version, python=python))
    verify(saved.path, saved.translator, saved.signatures, saved.requests, python)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.name)
def test_every_signature_is_answered_alike_by_the_c_api(saved, environment):
    texts = [text.decode(errors="replace") for text in TEXTS]
    requests = [(name, SIGNATURES[name].example(texts)) for name in saved.signatures]
    python = environment / "bin" / "python"
    printed = run_python(
        "-c", C_PROCESS, saved.path, CHECKOUT, python=python, input=json.dumps(requests)
    )
    for line, (name, inputs) in zip(printed.splitlines(), requests, strict=True):
        tensors = {
            key: tf.constant(inputs[key], spec.dtype)
            for key, spec in SIGNATURES[name].inputs.items()
        }
        expected = graph_of(SIGNATURES[name], saved.translator.graph)(**tensors)
        assert_same(
            json.loads(line), decoded({key: tensor.numpy() for key, tensor in expected.items()})
        )


# Prints the definitions of operations, null for those that a package does not register.
REGISTRY = """
import base64, importlib, json, sys
importlib.import_module(sys.argv[1])
from tensorflow.python.framework import op_def_registry
definitions = {name: op_def_registry.get(name) for name in json.load(sys.stdin)}
print(json.dumps({n: d and base64.b64encode(d.SerializeToString()).decode() for n, d in definitions.items()}))
"""


def registered(version, package, names):
    """The definitions of those operations that a package registers, with what it imports."""
    python = CHECKOUT / f".venv-servers-{version}" / "bin" / "python"
    printed = run_python("-c", REGISTRY, package, python=python, input=json.dumps(names))
    definitions = json.loads(printed.splitlines()[-1])
    return {
        name: OpDef.FromString(base64.b64decode(text)) for name, text in definitions.items() if text
    }


def arguments(definition):
    """What goes in and out of an operation; what describes it in words is left out."""
    args = [*definition.input_arg, *definition.output_arg]
    return [
        (arg.name, arg.type, arg.type_attr, arg.number_attr, arg.type_list_attr, arg.is_ref)
        for arg in args
    ]


@pytest.mark.slow
@pytest.mark.parametrize("version, text_version", LINKED.items())
def test_operations_and_attributes_are_those_that_a_server_registers(saved, version, text_version):
    (meta_graph,) = SavedModel.FromString((saved.path / "saved_model.pb").read_bytes()).meta_graphs
    functions = meta_graph.graph_def.library.function
    nodes = [
        *meta_graph.graph_def.node,
        *(node for function in functions for node in function.node_def),
    ]
    used = sorted({node.op for node in nodes} - {function.signature.name for function in functions})
    text = registered(text_version, "tensorflow_text", used)
    server = {**text, **registered(version, "tensorflow", used)}
    assert [name for name in used if name not in server] == []
    assert [
        name for name in used if arguments(server[name]) != arguments(op_def_registry.get(name))
    ] == []
    for node in nodes:
        if node.op in server:
            given = {name for name in node.attr if not name.startswith("_")}
            known = {attribute.name for attribute in server[node.op].attr}
            required = {
                attribute.name
                for attribute in server[node.op].attr
                if not attribute.HasField("default_value")
            }
            assert required <= given <= known, (node.op, given ^ known)
