"""The SavedModel against the translator: loaded in two ways, neither of which knows this
package."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from fresh_process import run_python
from google.protobuf import text_format
from session_mode import SavedModelSession, run_session
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError
from keras_transformer.export import servable as exporter
from keras_transformer.export.servable import TRIED, export_servable
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.export.warmup import REQUESTS
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.run.state import RunState, save_training_state
from keras_transformer.translation import Translator
from keras_transformer.translation.shapes import MIN_TEXTS_PER_BATCH

ORDINARY = [source.encode() for source, _ in sentence_pairs()[::6]]
AWKWARD = [
    b"",
    b" ",
    (b"the dog buys two apples. " * 200)[:5000],
    "🙂 Zoë 👩‍👩‍👧 漢字".encode(),
    b"Anna sees\na tree.\r\n",
    b"Anna\tbuys",
    b"\n",
    b"\0",
    b"Anna\0 sees a tree.\0",
    b"\xff\xfe\xc3 paints \xe2\x82 the bridge.",
    "\ufeff\u2028▁␛".encode(),
]
MIXED = [text for pair in zip(ORDINARY, AWKWARD) for text in pair] + AWKWARD[len(ORDINARY) :]
BATCHES = [MIXED, ORDINARY, [], AWKWARD[:1], ORDINARY[:1], MIXED * 6]

# Reads batches of texts in hexadecimal, writes translations in hexadecimal and scores.
FRESH_PROCESS = """
import json, sys
# Whoever imports one of these is told that there is none.
for name in ("keras_transformer", "training", "export"):
    sys.modules[name] = None
sys.path = [path for path in sys.path if path != sys.argv[2]]
import tensorflow as tf
import tensorflow_text
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
answers = []
for batch in json.load(sys.stdin):
    answer = translate(text=tf.constant([bytes.fromhex(text) for text in batch], tf.string, [len(batch)]))
    answers.append([[text.hex() for text in answer["text"].numpy()], answer["score"].numpy().tolist()])
loaded = {name.split(".")[0] for name, module in sys.modules.items() if module is not None}
assert not loaded & {"keras_transformer", "training", "export"}
print(json.dumps(answers))
"""

# In a session: the requests that warm up, then others.
WATCHED_SESSION = """
import ast, os, pathlib, sys
sys.path[:0] = [sys.argv[2] + "/tests", sys.argv[2] + "/tests/export"]
import tensorflow_text
from session_mode import SavedModelSession
from test_servable import read_warmup_requests, request_of
run = SavedModelSession(sys.argv[1])
logs = read_warmup_requests(pathlib.Path(sys.argv[1]))
for name, inputs in [*map(request_of, logs), *ast.literal_eval(sys.stdin.read())]:
    os.write(2, b"A request:\\n")
    run(name, inputs)
"""

CHECKOUT = str(pathlib.Path(__file__).resolve().parents[2])


@pytest.fixture(scope="module")
def other_translator(wordpiece_model_dir):
    return Translator.load(wordpiece_model_dir, DecodingConfig(beam_size=1))


@pytest.fixture(scope="module")
def saved_and_verified(other_translator, tmp_path_factory):
    """The path of a SavedModel, and its state when it was verified: other versions, and its
    content."""
    folder = tmp_path_factory.mktemp("other")
    verify, seen = exporter.verify, []

    def watch(path, *arguments):
        verify(path, *arguments)
        seen.append((list(folder.glob("[0-9]*")), content(path)))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(exporter, "verify", watch)
        return export_servable(
            other_translator, folder, signatures=["serving_default", "detokenize"]
        ), seen


@pytest.fixture(scope="module")
def other_saved_model(saved_and_verified):
    return saved_and_verified[0]


@pytest.fixture(scope="module")
def expected(translator):
    return [[row[0] for row in translator.n_best(batch, 1)] for batch in BATCHES]


def assert_same(answers, expected, tolerance=1e-5):
    assert len(answers) == len(expected)
    for (texts, scores), rows in zip(answers, expected):
        assert [text.decode() for text in texts] == [text for text, _ in rows]
        np.testing.assert_allclose(
            scores, [score for _, score in rows], rtol=tolerance, atol=tolerance
        )


def run_fresh_process(path, batches, cwd):
    texts = json.dumps([[text.hex() for text in batch] for batch in batches])
    printed = run_python("-c", FRESH_PROCESS, path, CHECKOUT, input=texts, cwd=cwd)
    return [
        ([bytes.fromhex(text) for text in texts], scores) for texts, scores in json.loads(printed)
    ]


@pytest.mark.slow
def test_a_fresh_process_without_this_package_answers_the_same(servable, expected, tmp_path):
    assert_same(run_fresh_process(servable, BATCHES, tmp_path), expected)


def test_a_session_answers_the_same(servable, expected):
    assert_same(run_session(servable, BATCHES), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIGNATURES)
def test_the_executor_for_low_latency_answers_the_same(servable, name):
    # A server that is given these options in a file reads them in this way.
    options = 'experimental { executor_type: "SINGLE_THREADED_EXECUTOR" }'
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=2)
    text_format.Parse(options, config)
    inputs = SIGNATURES[name].example([text.decode(errors="replace") for text in MIXED])
    models = SavedModelSession(servable), SavedModelSession(servable, config)
    expected = models[0](name, inputs)
    # More requests at once than there are threads.
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        for answer in clients.map(lambda _: models[1](name, inputs), range(8)):
            for key, array in expected.items():
                if array.dtype.kind == "f":
                    np.testing.assert_allclose(
                        answer[key], array, rtol=1e-5, atol=1e-5, err_msg=key
                    )
                else:
                    np.testing.assert_array_equal(answer[key], array, err_msg=key)
    for model in models:
        model.close()


@pytest.mark.slow
def test_wordpiece_and_greedy_search_are_served_too(other_translator, other_saved_model, tmp_path):
    texts = ORDINARY[:3] + AWKWARD
    expected = [[row[0] for row in other_translator.n_best(texts, 1)], []]
    assert_same(run_session(other_saved_model, [texts, []]), expected)
    assert_same(run_fresh_process(other_saved_model, [texts, []], tmp_path), expected)


def test_the_signature_is_text_to_text_and_score(servable):
    meta_graph = read_meta_graph(servable)
    signature = meta_graph.signature_def["serving_default"]
    described = {
        (kind, name): (info.dtype, [dim.size for dim in info.tensor_shape.dim])
        for kind, infos in (("in", signature.inputs), ("out", signature.outputs))
        for name, info in infos.items()
    }
    assert described == {
        ("in", "text"): (tf.string.as_datatype_enum, [-1]),
        ("out", "text"): (tf.string.as_datatype_enum, [-1]),
        ("out", "score"): (tf.float32.as_datatype_enum, [-1]),
        ("out", "source_length"): (tf.int32.as_datatype_enum, [-1]),
        ("out", "truncated"): (tf.bool.as_datatype_enum, [-1]),
    }


@pytest.mark.slow
def test_every_signature_is_there_once(servable, other_saved_model):
    signatures = read_meta_graph(servable).signature_def
    assert {*signatures} - {"__saved_model_init_op"} == {*SIGNATURES}
    assert signatures["translate"] == signatures["serving_default"]
    for name, described in SIGNATURES.items():
        assert {*signatures[name].inputs} == {*described.inputs} and {
            *signatures[name].outputs
        } == {*described.outputs}
        for info in (*signatures[name].inputs.values(), *signatures[name].outputs.values()):
            assert info.tensor_shape.dim[0].size == -1
    chosen = read_meta_graph(other_saved_model).signature_def
    assert {*chosen} - {"__saved_model_init_op"} == {"serving_default", "detokenize"}


WITHOUT_TEXT = """
import sys
sys.modules["tensorflow_text"] = None
import tensorflow as tf
translate = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
ids = tf.constant([[int(number) for number in sys.argv[2].split()]])
print(*translate(token_id=ids)["token_id"].numpy()[0].tolist())
"""


@pytest.mark.slow
def test_tokens_are_translated_where_tensorflow_text_is_not(translator, tmp_path):
    path = export_servable(
        translator,
        tmp_path,
        signatures=["serving_default", "translate_tokens"],
        serving_default="translate_tokens",
        verified=False,
    )
    source, target = sentence_pairs()[0]
    ids = " ".join(map(str, translator.token_ids([source])[0]))
    printed = run_python("-c", WITHOUT_TEXT, path, ids)
    assert translator.detokenize(
        [[int(number) for number in printed.split()]]
    ).numpy().tolist() == [target.encode()]


def test_the_weights_are_saved_once_and_a_tied_table_as_the_kernel_of_the_logits_too(
    translator, servable
):
    kernel = np.asarray(translator.model.output_projection.kernel)
    num_bytes = (
        sum(int(np.prod(variable.shape)) * 4 for variable in translator.graph.weights)
        + kernel.nbytes
    )
    size = (servable / "variables" / "variables.data-00000-of-00001").stat().st_size
    assert num_bytes <= size < num_bytes + 10_000
    saved = tf.saved_model.load(str(servable)).weights
    assert len(saved) == len(translator.graph.weights) + 1
    np.testing.assert_array_equal(saved[-1], kernel)


@pytest.mark.slow
def test_the_graph_holds_nothing_that_a_stock_model_server_lacks(servable, other_saved_model):
    # The model server links tensorflow-text's ops_lib, which holds these.
    sentencepiece = {
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
        "SentencepieceDetokenizeOp",
        "SentencepieceIdToStringOp",
    }
    wordpiece = {
        "FastBertNormalize",
        "FastWordpieceTokenizeWithOffsets",
        "TFText>FastWordpieceDetokenize",
    }
    for path, tokenizer_ops in ((servable, sentencepiece), (other_saved_model, wordpiece)):
        graph = read_meta_graph(path).graph_def
        nodes = [
            *graph.node,
            *(node for function in graph.library.function for node in function.node_def),
        ]
        ops = {node.op for node in nodes} - {
            function.signature.name for function in graph.library.function
        }
        assert ops - set(dir(tf.raw_ops)) == tokenizer_ops
        assert not {op for op in ops if op.startswith("Xla") or "PyFunc" in op}


def read_warmup_requests(path):
    """The requests as TensorFlow Serving's own messages."""
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    return [PredictionLog.FromString(record) for record in records.as_numpy_iterator()]


def request_of(log):
    request = log.predict_log.request
    inputs = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
    return request.model_spec.signature_name, inputs


def test_the_warm_up_requests_are_what_tensorflow_serving_would_write(servable):
    logs = read_warmup_requests(servable)
    # `translate` is the same graph as `serving_default`.
    warmed = [name for name in SIGNATURES if name != "translate"]
    assert [request_of(log)[0] for log in logs] == [name for name in warmed for _ in REQUESTS]
    assert logs[: len(REQUESTS)] == [
        PredictionLog(
            predict_log=PredictLog(
                request=PredictRequest(
                    model_spec=ModelSpec(signature_name="serving_default"),
                    inputs={"text": tf.make_tensor_proto(texts)},
                )
            )
        )
        for texts in REQUESTS
    ]
    for request in (log.predict_log.request for log in logs):
        signature = read_meta_graph(servable).signature_def[request.model_spec.signature_name]
        assert {name: tensor.dtype for name, tensor in request.inputs.items()} == {
            name: info.dtype for name, info in signature.inputs.items()
        }


@pytest.mark.slow
# A session fuses other operations, and each rounds to eight bits in bfloat16.
@pytest.mark.parametrize(
    "precision, share, tolerance", [("bfloat16", 0.51, 2**-9), ("int8-weights", 0.3, 1e-5)]
)
def test_a_servable_has_the_weights_of_its_precision_and_its_translator_s_answers(
    tiny_model_dir, servable, tmp_path, precision, share, tolerance
):
    translator = Translator.load(tiny_model_dir, DecodingConfig(beam_size=1), precision=precision)
    path = export_servable(translator, tmp_path, signatures=["serving_default"])
    expected = [[row[0] for row in translator.n_best(batch, 1)] for batch in BATCHES]
    assert_same(run_session(path, BATCHES), expected, tolerance)
    sizes = [
        (folder / "variables" / "variables.data-00000-of-00001").stat().st_size
        for folder in (path, servable)
    ]
    assert sizes[0] < share * sizes[1]
    assert f", {precision}, " in (path / "assets.extra" / "README.md").read_text()


def test_the_warm_up_requests_are_as_many_and_as_long_as_the_search_tells_apart(
    translator, other_translator
):
    sizes = [len(texts) for texts in REQUESTS]
    assert min(sizes) == 1 and max(sizes) >= 2 * MIN_TEXTS_PER_BATCH
    for exported in (translator, other_translator):
        lengths = [exported.num_tokens(texts).max() for texts in REQUESTS]
        assert min(lengths) == 1 and max(lengths) > 50


@pytest.mark.slow
def test_the_warm_up_requests_warm_up_every_signature(servable):
    logs = read_warmup_requests(servable)
    watched = [
        (name, SIGNATURES[name].example(texts))
        for name in SIGNATURES
        for texts in (ORDINARY, MIXED)
    ]
    finished = subprocess.run(
        [sys.executable, "-c", WATCHED_SESSION, str(servable), CHECKOUT],
        input=repr(watched),
        capture_output=True,
        text=True,
        env={**os.environ, **LOGS_OPTIMIZATIONS},
    )
    assert finished.returncode == 0, finished.stderr
    optimized = numbers_of_optimizations(finished.stderr)
    assert len(optimized) == len(logs) + len(watched)
    assert all(optimized[: len(logs) : len(REQUESTS)]) and not any(optimized[len(logs) :])


LOGS_OPTIMIZATIONS = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "meta_optimizer=1"}


def numbers_of_optimizations(log):
    """How many graphs are optimized between one request and the next."""
    _, *logs = log.split("A request:")
    return [log.count("Starting optimization") for log in logs]


def read_meta_graph(path):
    (meta_graph,) = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    ).meta_graphs
    return meta_graph


def content(path):
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.slow
def test_what_appears_is_what_was_verified_and_nothing_before(saved_and_verified):
    path, seen = saved_and_verified
    published = content(path)
    card = published.pop("assets.extra/README.md")
    assert seen == [([], published)]
    assert {"saved_model.pb", "variables/variables.index"} <= set(published)
    title, rest = card.decode().split("\n", 1)
    of_version = (
        "This is the card of version 1. Each version has its own: `assets.extra/README.md`."
    )
    assert (path.parent / "README.md").read_text() == f"{title}\n\n{of_version}\n{rest}"


def test_the_model_card_says_what_an_operator_asks(translator, servable):
    card = (servable.parent / "README.md").read_text()
    weights = (servable / "variables" / "variables.data-00000-of-00001").read_bytes()
    for fact in (
        "# Translation model en-de",
        "| License of the weights | CC0-1.0 |",
        "| Training | 100 updates, with 12 pairs |",
        "| Longest document | 200 sentences, or as many as begin within 8,192 tokens; split into "
        "sentences by the rules for unknown",
        f"| Parameters | {translator.model.config.num_parameters:,}, float32, "
        f"{len(weights) / 1e6:.1f} MB |",
        "| Vocabulary | 328 tokens |",
        "| Search | beam of 4, length penalty 0.6 |",
        "| Longest input | 64 tokens with the end token;",
        f"`{hashlib.sha256(weights).hexdigest()}`",
        f"tensorflow {tf.__version__}",
        "- BLEU = 41.00 (signature), 12 sentences of test.en",
    ):
        assert fact in card, fact
    for name, signature in SIGNATURES.items():
        section = card.split(f"### `{name}`\n")[1].split("###")[0]
        assert all(f"`{key}`" in section for key in (*signature.inputs, *signature.outputs))


@pytest.mark.slow
def test_the_command_s_languages_divide_documents_and_what_trained_the_model_is_told(
    tiny_model_dir, tmp_path, capsys
):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    text = {"train": {"lines": 1200, "source": "ab" * 32, "target": "cd" * 32}}
    save_training_state(ModelDir(folder), {}, RunState(step=300, text=text))
    arguments = [
        "export",
        "--model-dir",
        str(folder),
        "--output",
        str(tmp_path / "servable"),
        "--no-verify",
    ]
    for languages in ("de_CH-en", "xx-en"):
        main([*arguments, "--signatures", "detokenize", "--languages", languages])
    cards = [
        (pathlib.Path(path) / "assets.extra" / "README.md").read_text()
        for path in capsys.readouterr().out.split()
    ]
    assert ["split into sentences by the rules for de |" in card for card in cards] == [True, False]
    assert "split into sentences by the rules for unknown languages |" in cards[1]
    training = (
        f"300 updates, with a text of 1,200 sentence pairs (SHA-256 of the source "
        f"`{'ab' * 32}`, of the target"
    )
    assert all(f"| Training | {training} `{'cd' * 32}`) |" in card for card in cards)


def test_the_servers_of_the_model_card_are_those_that_are_tried():
    makefile = pathlib.Path(CHECKOUT, "Makefile").read_text()
    packages = re.findall(
        r"^PACKAGES_.* := tensorflow==(\S+) tensorflow-text==(\S+)$", makefile, re.MULTILINE
    )
    # The first is there for its tensorflow-text alone.
    assert list(TRIED.items()) == packages[1:]


@pytest.mark.slow
def test_a_saved_model_that_translates_otherwise_is_not_published(
    wordpiece_model_dir, other_translator, other_saved_model, tmp_path, monkeypatch
):
    other = Translator.load(wordpiece_model_dir, other_translator.decoding)

    def search(texts):
        translations = other_translator.graph.with_margins().search(texts)
        return translations._replace(texts=tf.strings.join([translations.texts, "something else"]))

    def save(module, path, signatures):
        shutil.copytree(
            other_saved_model,
            path,
            ignore=shutil.ignore_patterns("assets.extra"),
            dirs_exist_ok=True,
        )

    monkeypatch.setattr(other.graph, "search", search)
    monkeypatch.setattr(tf.saved_model, "save", save)
    with pytest.raises(
        RuntimeError,
        match=r"serving_default: text: .* differ by more than rounding[^\0]*something else",
    ):
        export_servable(other, tmp_path, signatures=["serving_default"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_operation_that_no_server_has_is_not_published(tiny_model_dir, tmp_path):
    class Other(Translator):
        def detokenize(self, token_ids):
            return tf.ensure_shape(
                tf.numpy_function(lambda ids: np.full(len(ids), b""), [token_ids], tf.string),
                [None],
            )

    with pytest.raises(RuntimeError, match="a model server does not register PyFunc"):
        export_servable(Other.load(tiny_model_dir), tmp_path, signatures=["detokenize"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_current_folder_may_have_any_name(translator, tmp_path, monkeypatch):
    # TensorFlow reads the path of a SavedModel as a pattern.
    (tmp_path / "a[b]").mkdir()
    monkeypatch.chdir(tmp_path / "a[b]")
    assert export_servable(translator, "out", signatures=["detokenize"]).is_dir()


def test_what_is_not_verified_is_published_as_it_is(translator, tmp_path, monkeypatch):
    monkeypatch.setattr(exporter, "verify", lambda *arguments: pytest.fail("verified"))
    assert export_servable(translator, tmp_path, signatures=["detokenize"], verified=False).is_dir()


@pytest.mark.parametrize(
    "names, message",
    [
        (["trnslate"], "signatures must be among serving_default, .*trnslate"),
        ([], "at least one"),
        (
            ["translate", "score"],
            "serving_default must be translate unless signatures include serving_default; rec",
        ),
    ],
)
def test_signatures_that_are_unknown_or_not_there_are_refused(translator, tmp_path, names, message):
    with pytest.raises(ConfigError, match=message):
        export_servable(translator, tmp_path, signatures=names, serving_default="score")
