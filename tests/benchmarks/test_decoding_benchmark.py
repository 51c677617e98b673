"""Tests of the benchmark of decoding: requests, counts, and engines that must agree. No times."""

import collections
import json
import os
import shutil
import threading

import pytest
from test_comparison import invented_text, run_command

from benchmarks import decoding, server_load, trained_models
from benchmarks.contenders.ctranslate2 import load_tokenizers
from benchmarks.decoding import agreement
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, prepare, send_requests
from benchmarks.processes import contender
from keras_transformer.config import DecodingConfig
from keras_transformer.export.ctranslate2 import export_ctranslate2
from keras_transformer.translation import Translator


@pytest.fixture(scope="module")
def pairs():
    return invented_text()


@pytest.fixture(scope="module")
def task(tmp_path_factory, tiny_model_dir, pairs):
    task, translator = prepare(
        tmp_path_factory.mktemp("task"),
        tiny_model_dir,
        pairs,
        beam_sizes=(BEAM_SIZE,),
        length_penalty=0.0,
        compiled=True,
    )
    export_ctranslate2(translator, task.path / "ctranslate2")
    return task


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    return Translator.load(
        tiny_model_dir, DecodingConfig(BEAM_SIZE, length_penalty=0.0, max_extra_tokens=64)
    )


@pytest.mark.slow
def test_requests_contain_each_sentence_once_the_longest_first(task, pairs, translator):
    requests = task.requests()
    assert [len(request) for request in requests] == [REQUEST_SIZE, len(pairs) - REQUEST_SIZE]
    sources = sum(requests, [])
    texts = collections.Counter(zip(sources, task.facts["references"]))
    assert texts == collections.Counter(zip(pairs.source, pairs.target))
    lengths = list(translator.num_tokens(sources))
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    assert task.requests(size=1, every=5) == [[source] for source in sources[::5]]


@pytest.mark.slow
def test_saved_model_and_ctranslate2_give_the_same_translations(task, translator):
    answers = {}
    for name, module in (
        (decoding.SAVED_MODEL, "saved_model"),
        (decoding.CTRANSLATE2, "ctranslate2"),
    ):
        assert task.read_answers(name) is None
        measured = contender(module, task.path, "--answers", name)()
        assert measured["sentences"] == len(task.facts["sources"])
        assert measured["value"] == measured["sentences"] / measured["seconds"]
        assert measured["bleu"] == pytest.approx(100)
        answers[name] = task.read_answers(name)
    expected = [list(best[0]) for best in translator.n_best(task.facts["sources"], 1)]
    assert [text for text, _ in answers[decoding.SAVED_MODEL]] == [text for text, _ in expected]
    agreed = agreement(answers[decoding.SAVED_MODEL], answers[decoding.CTRANSLATE2])
    assert (
        agreed["equal"] == agreed["sentences"] == len(expected)
        and agreed["score_difference"] < 1e-3
    )
    contender("saved_model", task.path, "--answers", "compiled", "--compile")()
    assert [text for text, _ in task.read_answers("compiled")] == [text for text, _ in expected]


def test_agreement_equals_a_count_by_hand():
    first = [["a", -1.0], ["b", -2.0], ["c", -3.0], ["d", -4.0]]
    second = [["a", -1.25], ["b", -2.0], ["x", -3.5], ["d", -3.5]]
    assert agreement(first, second) == {
        "sentences": 4,
        "equal": 3,
        "score_difference": 0.5,
        "others": [[-3.0, -3.5]],
    }
    nothing = agreement([["a", -1.0]], [["b", -1.0]])
    assert nothing["equal"] == 0 and nothing["score_difference"] is None
    with pytest.raises(ValueError, match="shorter"):
        agreement(first, second[:3])


def test_requests_are_answered_at_once_and_in_order():
    both = threading.Barrier(2, timeout=600)

    def answer_in_pairs(request):
        both.wait()
        return request * 2

    assert send_requests(answer_in_pairs, range(6), at_once=2)[0] == [0, 2, 4, 6, 8, 10]
    here = threading.current_thread()
    answers, seconds = send_requests(lambda request: threading.current_thread(), range(3))
    assert answers == [here] * 3 and seconds > 0


def contenders_by_table(monkeypatch, cores, **options):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(
        "ctranslate2.get_supported_compute_types", lambda device: {"int8", "float32", "bfloat16"}
    )
    return [list(table.contenders) for table in decoding.comparisons("task", **options)]


def test_engines_are_compared_on_the_cores_that_there_are_at_the_moment(monkeypatch):
    float32, best, greedy, single = contenders_by_table(monkeypatch, cores=3)
    names = ["SavedModel", "CTranslate2", "SavedModel, compiled"]
    at_once = [name + suffix for name in names for suffix in ("", ", 3 at once")]
    assert float32 == greedy == at_once
    assert best[-1] == "CTranslate2, bfloat16, 3 at once"
    beam = [name + suffix for name in names for suffix in ("", ", 3 threads")]
    assert single == [*beam, *(f"{name}, greedy" for name in beam)]
    float32, _, greedy, single = contenders_by_table(monkeypatch, cores=1)
    assert float32 == greedy == names
    assert single == [*names, *(f"{name}, greedy" for name in names)]


@pytest.mark.slow
def test_ctranslate2_reads_texts_as_imported_tokenizers_do(task, tmp_path):
    ours = task.path / "ctranslate2" / "1"
    assert load_tokenizers(ours)[2] == " "
    for side in ("source", "target"):
        shutil.copy(ours / "tokenizer.model", tmp_path / f"{side}.sentencepiece.model")
    source, target, space = load_tokenizers(tmp_path)
    assert (source is target, space) == (False, "") and target.decode(
        source.encode("the dog")
    ) == "the dog"


def scripted(value, **more):
    return lambda: {"value": value, "versions": {}, **more}


def test_time_of_a_sentence_alone_is_in_milliseconds(monkeypatch):
    monkeypatch.setattr(decoding, "contender", lambda *arguments: scripted(40, bleu=7))
    (*_, single) = decoding.comparisons("task")
    assert single.contenders["SavedModel"]() == {"value": 25, "bleu": 7, "versions": {}}


@pytest.mark.long
def test_decoding_runs(tmp_path, monkeypatch, capsys, tiny_model_dir):
    path = tmp_path / "decoding.json"
    arguments = (
        "--model-dir",
        tiny_model_dir,
        "--sentences",
        3,
        "--json",
        path,
        "--cores",
        1,
        "--repeats",
        1,
    )
    cores = os.sched_getaffinity(0)
    try:
        # The other tables have the same contenders with other options.
        run_command(decoding, monkeypatch, *arguments, "--tables", "float32")
    finally:
        os.sched_setaffinity(0, cores)
    (table,) = json.loads(path.read_text())["comparisons"]
    names = ["SavedModel", "CTranslate2", "SavedModel, compiled"]
    assert list(table["reports"]) == names and table["failures"] == {}
    assert " of 3 translations of SavedModel and CTranslate2 are equal" in capsys.readouterr().out


@pytest.mark.long
def test_trained_models_are_compared_with_the_first(tmp_path, monkeypatch, capsys, tiny_model_dir):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})
    copy = shutil.copytree(tiny_model_dir, tmp_path / "copy")
    path = tmp_path / "models.json"
    options = ("--sentences", 2, "--repeats", 1, "--json", path)
    run_command(trained_models, monkeypatch, tiny_model_dir, copy, *options)
    assert f"SavedModels, float32, beam 4, batch 32, 2 at once: {copy}" in capsys.readouterr().out
    tables = json.loads(path.read_text())["comparisons"]
    assert [list(table["reports"]) for table in tables] == [[str(tiny_model_dir), str(copy)]] * 2


@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("--batching", "--single")])
def test_a_server_is_loaded(task, tmp_path, monkeypatch, capsys, more):
    path, servable = tmp_path / "load.json", task.saved_model("float32", BEAM_SIZE)
    options = ("--clients", 3, "--minutes", 0.02, "--json", path, *more)
    run_command(server_load, monkeypatch, "--servable", servable, *options)
    (table,) = json.loads(path.read_text())["comparisons"]
    (report,) = table["reports"]["3 clients"]
    assert report["num_errors"] == 0 and report["requests"] >= 3 and len(report["megabytes"]) == 20
    assert report["optimized_in_warm_up"] > 0 and report["optimized_later"] == 0
    assert report["latencies"]["p50"] <= report["latencies"]["p95"] <= report["latencies"]["p99"]
    assert f"{report['requests']:,} requests, 0 errors" in capsys.readouterr().out
