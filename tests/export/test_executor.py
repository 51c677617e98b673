"""SavedModels choose the executor of each batch's search themselves, and never wait for
themselves."""

import concurrent.futures
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from session_mode import SavedModelSession
from tensorflow.core.protobuf import saved_model_pb2
from test_servable import CHECKOUT, MIXED, ORDINARY, read_meta_graph

from keras_transformer.translation.executor import only_if

SINGLE_THREADED = b"SINGLE_THREADED_EXECUTOR"
LOOPS_AND_CONDITIONS = {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"}

# The first session of a process creates the thread pools for all later sessions.
PROCESS = """
import concurrent.futures, json, sys
sys.path.insert(0, sys.argv[1])
import tensorflow as tf
import tensorflow_text
from session_mode import SavedModelSession
_, _, path, executor, num_threads = sys.argv
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=int(num_threads))
config.experimental.executor_type = executor
session = SavedModelSession(path, config)
requests = json.load(sys.stdin)
answer = lambda texts: [text.decode() for text in session("translate", {"text": texts})["text"]]
answers = [answer(texts) for texts in requests]
with concurrent.futures.ThreadPoolExecutor(6) as clients:
    assert list(clients.map(answer, requests * 4)) == answers * 4
print(json.dumps(answers))
"""


def call_nodes(functions):
    """The nodes that call a function in the single-threaded executor."""
    nodes = (node for function in functions.values() for node in function.node_def)
    # Reading an attribute that is missing would add it.
    nodes = [node for node in nodes if "executor_type" in node.attr]
    return [node for node in nodes if node.attr["executor_type"].s == SINGLE_THREADED]


def functions_of(path):
    library = read_meta_graph(path).graph_def.library
    return {function.signature.name: function for function in library.function}


def with_functions_called_by(name, functions):
    """The names of a function and of all functions that it calls."""
    names, waiting = set(), [name]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            nodes = functions[name].node_def
            values = (value for node in nodes for value in node.attr.values())
            waiting += [value.func.name for value in values if value.func.name]
    return names


def test_the_attributes_that_the_executor_needs_are_saved(servable):
    functions = functions_of(servable)
    nodes = call_nodes(functions)
    called = {node.attr["f"].func.name for node in nodes}
    # Signatures share the functions for one translation, for several, and for prefixes.
    assert len(nodes) == 5 and len(called) == 3
    for name in called:
        assert functions[name].attr["_noinline"].b
        num_loops = 0
        for inner in with_functions_called_by(name, functions):
            for node in functions[inner].node_def:
                if node.op in LOOPS_AND_CONDITIONS:
                    num_loops += 1
                    assert not node.attr["_lower_using_switch_merge"].b
        assert num_loops


def edited_copy(servable, path, edit):
    """A copy of a SavedModel whose functions were edited."""
    shutil.copytree(servable, path)
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    functions = saved_model.meta_graphs[0].graph_def.library.function
    edit({function.signature.name: function for function in functions})
    file.write_bytes(saved_model.SerializeToString())
    return path


def test_other_devices_use_the_default_executor(servable, tmp_path):
    def fail_on_cpu(functions):
        for node in call_nodes(functions):
            node.attr["executor_type"].s = b"NO_SUCH_EXECUTOR"

    def fail_elsewhere(functions):
        fail_on_cpu(functions)
        for function in functions.values():
            for node in function.node_def:
                if node.op == "DeviceIndex":
                    assert node.attr["device_names"].list.s == [b"CPU"]
                    node.attr["device_names"].list.s[:] = [b"TPU"]

    inputs = {"text": ORDINARY}
    expected = SavedModelSession(servable)("translate", inputs)
    elsewhere = SavedModelSession(edited_copy(servable, tmp_path / "a", fail_elsewhere))
    answer = elsewhere("translate", inputs)
    assert list(answer["text"]) == list(expected["text"])
    # TensorFlow fuses other operations in each graph.
    np.testing.assert_allclose(answer["score"], expected["score"], rtol=1e-5)
    on_cpu = SavedModelSession(edited_copy(servable, tmp_path / "b", fail_on_cpu))
    with pytest.raises(tf.errors.NotFoundError, match="NO_SUCH_EXECUTOR"):
        on_cpu("translate", inputs)


def test_many_clients_get_the_answers_of_one(servable):
    session = SavedModelSession(servable)
    requests = [[text] for text in ORDINARY] + [MIXED, ORDINARY, []] * 3

    def answer(texts):
        answered = session("translate", {"text": texts})
        return list(answered["text"]), answered["score"].tolist()

    expected = [answer(texts) for texts in requests]
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        assert list(clients.map(answer, requests)) == expected
    session.close()


@pytest.mark.parametrize("condition", [True, False])
def test_only_if_returns_other_results_or_calls_the_function(condition):
    @tf.function
    def choose(condition):
        results = tf.ones([2, 3]), tf.constant(4)
        return only_if(condition, lambda: results, (tf.zeros([0, 1]), tf.constant(5)))

    ones, number = choose(tf.constant(condition))
    assert (ones.shape, int(number)) == (((2, 3), 4) if condition else ((0, 1), 5))


@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("executor", ["", SINGLE_THREADED.decode()])
@pytest.mark.parametrize("kind", ["servable", "compiled_servable"])
def test_no_setting_of_a_session_makes_a_request_wait_forever(
    request, translator, kind, executor, num_threads
):
    short, long = "Anna sees a tree.", "the dog buys two apples. Zoë paints the bridge. " * 3
    requests = [[short], [long], [short, long, ""], [], [short, long] * 20, [short] * 70]
    finished = subprocess.run(
        [
            *(sys.executable, "-c", PROCESS, f"{CHECKOUT}/tests"),
            *(str(request.getfixturevalue(kind)), executor, str(num_threads)),
        ],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == [translator(texts) for texts in requests]
