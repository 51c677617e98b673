"""Tests of the benchmark of decoding: requests, counts, and engines that must agree. No times."""

import collections
import json
import shutil
import sys
import threading

import numpy as np
import pytest
from conftest import sentence_pairs as invented_pairs
from keras_transformer.training.text.corpus import SentencePairs

from benchmarks import decoding, trained_models
from benchmarks.comparison import Comparison
from benchmarks.contenders import whole_prefix
from benchmarks.contenders.ctranslate2 import load_tokenizers
from benchmarks.decoding_task import BEAM_SIZE, REQUEST_SIZE, agreement, prepare, send_requests, split_into_requests
from benchmarks.machine import AVX2_ENVIRONMENT
from benchmarks.processes import RunFailed, contender
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import beam_search
from keras_transformer.errors import ConfigError
from keras_transformer.translation import Translator


@pytest.fixture(scope="module")
def pairs():
    source, target = zip(*invented_pairs())
    return SentencePairs(list(source), list(target), "invented")


@pytest.fixture(scope="module")
def task(tmp_path_factory, tiny_model_dir, pairs):
    return prepare(tmp_path_factory.mktemp("task"), tiny_model_dir, pairs, decoding.PRECISIONS)


@pytest.fixture(scope="module")
def translator(tiny_model_dir):
    return Translator.load(tiny_model_dir, DecodingConfig(BEAM_SIZE, length_penalty=0.0, max_extra_tokens=64))


def test_requests_contain_each_sentence_once_the_longest_first(task, pairs, translator):
    requests = task.requests()
    assert [len(request) for request in requests] == [REQUEST_SIZE, len(pairs) - REQUEST_SIZE]
    sources = sum(requests, [])
    found = collections.Counter(zip(sources, task.facts["references"]))
    assert found == collections.Counter(zip(pairs.source, pairs.target))
    lengths = list(translator.num_tokens(sources))
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    assert task.requests(size=1, every=5) == [[source] for source in sources[::5]]


def test_token_ids_are_the_subwords_of_the_requests(task, translator):
    expected = [translator.tokenizers.target.tokenize(request).to_list() for request in task.requests()]
    assert task.token_id_requests() == expected
    words = set((task.path / "vocabulary.txt").read_text().split())
    assert {str(token_id) for rows in expected for row in rows for token_id in row} <= words


def test_steps_of_a_request_are_the_tokens_of_its_longest_translation(task, translator):
    # The model has memorized the text: its translations are the references.
    references = task.facts["references"]
    lengths = [len(ids) + 1 for ids in translator.tokenizers.target.tokenize(references).to_list()]
    assert task.facts["num_steps"] == [max(lengths[:REQUEST_SIZE]), max(lengths[REQUEST_SIZE:])]
    assert min(task.facts["num_steps"]) <= task.mean_steps <= max(task.facts["num_steps"])


def test_saved_model_and_ctranslate2_give_the_same_translations(task, translator):
    answers = {}
    for name, module in ((decoding.SAVED_MODEL, "saved_model"), (decoding.CTRANSLATE2, "ctranslate2")):
        assert task.read_answers(name) is None
        measured = contender(module, task.path, "--answers", name)()
        assert measured["sentences"] == len(task.facts["sources"])
        assert measured["value"] == measured["sentences"] / measured["seconds"]
        assert measured["bleu"] == pytest.approx(100)
        answers[name] = task.read_answers(name)
    expected = [list(best[0]) for best in translator.n_best(task.facts["sources"], 1)]
    assert [text for text, _ in answers[decoding.SAVED_MODEL]] == [text for text, _ in expected]
    found = agreement(answers[decoding.SAVED_MODEL], answers[decoding.CTRANSLATE2])
    assert found["equal"] == found["sentences"] == len(expected) and found["score_difference"] < 1e-3


@pytest.mark.slow
def test_saved_model_with_greedy_search_answers_several_requests_at_once(task):
    arguments = ("--beam-size", 1, "--at-once", 2, "--request-size", 7, "--answers", "greedy")
    contender("saved_model", task.path, *arguments)()
    assert [text for text, _ in task.read_answers("greedy")] == task.facts["references"]
    assert task.saved_model("float32", 1) != task.saved_model("float32", BEAM_SIZE)


@pytest.mark.parametrize("beam_size", [1, pytest.param(BEAM_SIZE, marks=pytest.mark.slow)])
def test_model_without_cache_gives_the_same_translations_and_scores(task, tiny_model_dir, beam_size):
    search = DecodingConfig(beam_size, length_penalty=0.0, max_extra_tokens=64)
    # The last sentence is not in the training text.
    sources = [*task.facts["sources"][::9], "the bridge paints Zoë. Anna buys the dog."]
    cached, uncached = Translator.load(tiny_model_dir, search), whole_prefix.load(tiny_model_dir, search)
    # All hypotheses are compared: the best one of a confident model is never reordered.
    expected, received = cached.n_best(sources, beam_size), uncached.n_best(sources, beam_size)
    for found, best in zip(received, expected, strict=True):
        assert [text for text, _ in found] == [text for text, _ in best]
        assert [score for _, score in found] == pytest.approx([score for _, score in best], rel=1e-4, abs=1e-4)
    # Long enough for the state to grow.
    assert max(cached.num_tokens([best[0][0] for best in expected])) > 16


# At the first step the prefix has one position.
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis")
def test_model_without_cache_keeps_the_shape_of_its_state_if_the_length_is_given(task, tiny_model_dir, translator):
    model = whole_prefix.load(tiny_model_dir, translator.decoding).model
    source, limits = translator.token_ids(task.facts["sources"][:4]), np.full(4, 24, "int32")
    step, state = model.start_decoding(source, BEAM_SIZE, max_length=24)
    starts, parents = np.full((4, BEAM_SIZE), 2, "int32"), np.zeros((4, BEAM_SIZE), "int32")
    _, next_state = step(starts, parents, 0, state)
    assert [tensor.shape for tensor in next_state] == [tensor.shape for tensor in state]

    def search(model):
        step, state = model.start_decoding(source, BEAM_SIZE, max_length=24)
        return beam_search(step, state, limits, max_length=24, start_id=2, end_id=3, beam_size=BEAM_SIZE)

    found, expected = search(model), search(translator.model)
    assert np.array_equal(found.token_ids, expected.token_ids)
    assert np.asarray(found.scores) == pytest.approx(np.asarray(expected.scores), rel=1e-4, abs=1e-4)


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
    with pytest.raises(ValueError):
        agreement(first, second[:3])


def test_requests_are_answered_at_once_and_in_order():
    both = threading.Barrier(2, timeout=30)

    def answer_in_pairs(request):
        both.wait()
        return request * 2

    assert send_requests(answer_in_pairs, range(6), at_once=2)[0] == [0, 2, 4, 6, 8, 10]
    here = threading.current_thread()
    answers, seconds = send_requests(lambda request: threading.current_thread(), range(3))
    assert answers == [here] * 3 and seconds > 0


def test_reference_of_each_table_is_one_of_its_contenders(tmp_path, tiny_model_dir):
    tables = decoding.comparisons(tmp_path, tiny_model_dir)
    assert all(table.reference in table.contenders for table in tables)
    assert len({table.title for table in tables}) == 4


def contenders_by_table(monkeypatch, cores):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"int8", "float32", "bfloat16"})
    return [list(table.contenders) for table in decoding.comparisons("task", "model")]


def test_engines_are_compared_on_the_cores_that_there_are_at_the_moment(monkeypatch):
    float32, best, greedy, single = contenders_by_table(monkeypatch, cores=3)
    assert greedy == ["SavedModel", "SavedModel, 3 at once", "CTranslate2", "CTranslate2, 3 at once"]
    assert float32[:4] == greedy and best[-1] == "CTranslate2, bfloat16, 3 at once"
    assert float32[4:6] == ["Marian", "Marian, 3 at once"]
    # Marian's threads do not share a sentence.
    assert single == ["SavedModel", "SavedModel, 3 threads", "CTranslate2", "CTranslate2, 3 threads", "Marian"]
    float32, _, greedy, single = contenders_by_table(monkeypatch, cores=1)
    assert single == float32[:3] == [*greedy, "Marian"] == ["SavedModel", "CTranslate2", "Marian"]


def test_bfloat16_is_skipped_with_avx2(monkeypatch):
    for name, value in AVX2_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    best = contenders_by_table(monkeypatch, cores=1)[1]
    assert best == ["SavedModel, float32", "SavedModel, bfloat16", "CTranslate2, float32", "CTranslate2, int8"]
    assert decoding.usable_precisions() == ("float32",)
    table = decoding.comparisons("task", "model")[1]
    assert table.reference == "SavedModel, float32"
    with pytest.raises(RunFailed, match="^skipped: .*AVX2"):
        table.contenders["SavedModel, bfloat16"]()


def test_ctranslate2_reads_texts_as_imported_tokenizers_do(task, tmp_path):
    ours = task.path / "ctranslate2" / "1"
    assert load_tokenizers(ours)[2] == " "
    for side in ("source", "target"):
        shutil.copy(ours / "tokenizer.model", tmp_path / f"{side}.sentencepiece.model")
    source, target, space = load_tokenizers(tmp_path)
    assert (source is target, space) == (False, "") and target.decode(source.encode("the dog")) == "the dog"


# What pymarian would do, without its 600 MB; tests/test_marian.py runs the real one.
PYMARIAN = """
import json, pathlib

log = pathlib.Path(__file__).with_name("log.jsonl").open("a")

class Translator:
    def __init__(self, **options):
        print(json.dumps(options), file=log)

    def translate(self, texts):
        print(json.dumps(texts), file=log, flush=True)
        pairs = [(text, place) for text in texts for place in (1, 2)]
        return [f"{i // 2} ||| {text} ||| {place} ||| F0= -9 ||| -{place}.5" for i, (text, place) in enumerate(pairs)]
"""


@pytest.mark.parametrize("options, batch_size", [(("--threads", 2), 16), (("--at-once", 2, "--threads", 1), 32)])
def test_marian_translates_requests_on_as_many_threads_as_the_others(task, tmp_path, options, batch_size):
    (tmp_path / "pymarian.py").write_text(PYMARIAN)
    (tmp_path / "pymarian-1.2.dist-info").mkdir()
    (tmp_path / "pymarian-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pymarian\nVersion: 1.2\n"
    )
    files = ("--model", "m.npz", "--vocabs", "s.spm", "t.spm", "--answers", "pymarian")
    report = contender("marian", task.path, *options, *files, PYTHONPATH=tmp_path)()
    made, *calls = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert (made["models"], made["vocabs"]) == ("m.npz", ["s.spm", "t.spm"])
    assert (made["beam_size"], made["normalize"], made["gemm_type"]) == (BEAM_SIZE, 0, "float32")
    assert (made["cpu_threads"], made["mini_batch"], made["maxi_batch"]) == (2, batch_size, 1)
    sources = task.facts["sources"]
    # A warm-up, and what is timed.
    assert calls == 2 * ([sources] if "--at-once" in options else task.requests())
    # The first of each sentence's translations, even if it contains what separates them.
    assert task.read_answers("pymarian") == [[f"{source} ||| 1", -1.5] for source in sources]
    assert report["versions"] == {"pymarian": "1.2"} and report["value"] == len(sources) / report["seconds"]


def test_marian_is_given_the_files_of_the_model_s_folder(tmp_path, monkeypatch):
    with pytest.raises(RunFailed, match="^skipped: requires --marian"):
        decoding.comparisons("task", "model")[0].contenders["Marian"]()
    (tmp_path / "en-de.npz").write_text("")
    with pytest.raises(ConfigError, match="the vocabulary is missing"):
        decoding.comparisons("task", "model", marian=("python", str(tmp_path)))
    (tmp_path / "vocab.yml").write_text("")
    with pytest.raises(
        ConfigError, match=r"--marian must be a folder with vocabularies in .spm files; received .*vocab.yml"
    ):
        decoding.comparisons("task", "model", marian=("python", str(tmp_path)))
    (tmp_path / "vocab.yml").rename(tmp_path / "source.spm")
    (tmp_path / "target.spm").write_text("")
    shutil.copytree(tmp_path, tmp_path / "en de")
    with pytest.raises(ConfigError, match=r"--marian must be a folder of files without spaces .*en de/"):
        decoding.comparisons("task", "model", marian=("python", str(tmp_path / "en de")))
    monkeypatch.chdir(tmp_path)
    run = decoding.comparisons("task", "model", marian=("marian/python", "."))[0].contenders["Marian"]
    (command,) = run.args
    assert command[:4] == ["env", "marian/python", "-m", "benchmarks.contenders.marian"]
    vocabularies = [str(tmp_path / name) for name in ("source.spm", "target.spm")]
    assert command[5:10] == ["--model", str(tmp_path / "en-de.npz"), "--vocabs", *vocabularies]


def test_512_sentences_are_16_requests():
    requests = split_into_requests(list(range(512)), REQUEST_SIZE)
    assert [len(request) for request in requests] == [32] * 16


def scripted(value, **more):
    return lambda: {"value": value, "versions": {}, **more}


def test_time_per_sentence_is_in_milliseconds():
    assert decoding.in_milliseconds({"value": 40, "bleu": 7}) == {"value": 25, "bleu": 7}


def test_command_prepares_measures_and_writes(tmp_path, monkeypatch, capsys, task, tiny_model_dir):
    def comparisons(path, model_dir, opennmt, marian):
        task.write_answers(decoding.SAVED_MODEL, ["eins", "zwei"], [-1.0, -2.5])
        task.write_answers(decoding.CTRANSLATE2, ["eins", "drei"], [-1.5, -3.0])
        contenders = {
            decoding.SAVED_MODEL: scripted(300, sentences=2, bleu=41.5),
            decoding.CTRANSLATE2: scripted(200, sentences=1, bleu=41.25),
        }
        return [
            Comparison("decoding", "sentences/s", contenders, decoding.SAVED_MODEL),
            Comparison("not selected", "sentences/s", {"other": scripted(1)}),
        ]

    monkeypatch.setattr(decoding, "comparisons", comparisons)
    monkeypatch.setattr(decoding, "prepare", lambda *arguments: task)
    path = tmp_path / "decoding.json"
    arguments = ["decoding", "--model-dir", str(tiny_model_dir), "--sentences", "2", "--json", str(path)]
    only = ["--only", decoding.SAVED_MODEL, "--only", decoding.CTRANSLATE2]
    monkeypatch.setattr(sys, "argv", [*arguments, "--repeats", "1", *only])
    decoding.main()
    printed = capsys.readouterr().out
    # CTranslate2 did not translate all sentences.
    assert "BLEU 41.50: decoding: SavedModel" in printed and "41.25" not in printed
    assert "1 of 2 translations of SavedModel and CTranslate2 are equal" in printed and "5.0e-01" in printed
    assert "log probability -2.5000 against -3.0000" in printed
    written = json.loads(path.read_text())
    assert [table["title"] for table in written["comparisons"]] == ["decoding"]
    assert written["comparisons"][0]["contenders"][1]["ratio"] == 1.5
    assert written["settings"]["sentences"] == 2 and written["settings"]["agreement"]["CTranslate2"]["others"] == [
        [-2.5, -3.0]
    ]
    monkeypatch.setattr(sys, "argv", [*arguments, "--only", "nowhere"])
    with pytest.raises(SystemExit):
        decoding.main()


def test_trained_models_are_compared_with_the_first(tmp_path, monkeypatch, capsys):
    prepared = []
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1})

    def prepare(path, model_dir, pairs, precisions, length_penalty):
        assert precisions == ("float32",) and length_penalty is None
        prepared.append((path, model_dir))

    monkeypatch.setattr(trained_models, "prepare", prepare)

    def contender(module, path, option, at_once):
        assert (module, option) == ("saved_model", "--at-once")
        speed = {"large": 100, "small": 250}[dict(prepared)[path]]
        return scripted(speed * at_once, sentences=2, bleu=40 + speed / 100)

    monkeypatch.setattr(trained_models, "contender", contender)
    path = tmp_path / "models.json"
    arguments = ["large", "small", "--sentences", "2", "--repeats", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["trained_models", *arguments])
    trained_models.main()
    assert "BLEU 42.50: SavedModels, float32, beam 4, batch 32, 2 at once: small" in capsys.readouterr().out
    tables = json.loads(path.read_text())["comparisons"]
    assert [[row["median"] for row in table["contenders"]] for table in tables] == [[100, 250], [200, 500]]
    assert [row["ratio"] for row in tables[0]["contenders"]] == [1, 0.4]


def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["trained_models", str(tmp_path), "--json", str(tmp_path / "models.json")])
    with pytest.raises(SystemExit):
        trained_models.main()
    assert f"error: {tmp_path}" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--sentences", "0"])
    with pytest.raises(SystemExit):
        trained_models.main()
    assert "error: the number of sentence pairs must be positive; received" in capsys.readouterr().err.splitlines()[-1]
