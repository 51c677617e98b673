"""The scripts of examples/ that begin with a text or a trained translator: shortened runs, and
whole ones."""

import importlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_server import serving

from examples import batch_translation, constrained_search, train_with_fit
from keras_transformer.decoding import beam_search
from keras_transformer.export.servable import graph_of
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.losses import MaskedLabelSmoothedCrossentropy
from keras_transformer.model_dir import ModelDir
from keras_transformer.serving.server import RestApi, ServedFunction
from keras_transformer.translation import Translator

FOLDER = pathlib.Path(__file__).parents[2] / "examples"
NAMES = ["batch_translation", "constrained_search", "fine_tuning", "rest_client", "whole_path"]
TEXTS = ["Anna sees a tree.", "Zoë buys two apples.", "", "Anna sees a tree."]


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script's `main`, and returns what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        importlib.import_module(f"examples.{name}").main()
        return capsys.readouterr().out

    yield run
    keras.backend.clear_session()


@pytest.mark.slow
def test_the_whole_path_goes_from_text_to_what_is_served(run, tmp_path):
    printed = run("whole_path", tmp_path, "--steps", 2)
    assert re.search(r"^BLEU \d+\.\d, chrF \d+\.\d$", printed, re.MULTILINE)
    served = re.search(
        r"^(.+) translates (\d+) of 200 sentences as the translator does$", printed, re.MULTILINE
    )
    # Of a model that has learned nothing, close scores may be ranked otherwise.
    assert served[1] == str(tmp_path / "servable" / "1") and int(served[2]) > 190


@pytest.mark.slow
def test_fine_tuning_stops_when_the_callback_says(run, tiny_model_dir, tmp_path):
    printed = run("fine_tuning", tiny_model_dir, tmp_path / "swiss", "--steps", 40, "--bleu", 0)
    assert (
        len(re.findall(r"^after 20 updates: BLEU \d+\.\d, perplexity", printed, re.MULTILINE)) == 1
    )
    assert "after 40 updates" not in printed
    assert "\n    before: " in printed and "\n    after: " in printed


@pytest.mark.slow
def test_fit_trains_what_the_commands_translate_with(run, tiny_model_dir, tmp_path):
    model_dir = ModelDir(shutil.copytree(tiny_model_dir, tmp_path / "model"))
    for path in (model_dir.best_path, *model_dir.checkpoints().values()):
        path.unlink()
    for name, line in (("source", "Anna sees a tree."), ("target", "Anna sieht einen Baum.")):
        (tmp_path / name).write_text(f"{line}\n" * 8)
    texts = ("--source", tmp_path / "source", "--target", tmp_path / "target")
    printed = run(
        "train_with_fit", "--model-dir", model_dir, *texts, "--steps", 60, "--batch-size", 8
    )
    assert re.search(
        r"^8 of 8 pairs have at most 96 tokens\nstep 60: loss \d\.\d{3}, \d+ s$",
        printed,
        re.MULTILINE,
    )
    (translation,) = Translator.load(model_dir).translate(["Anna sees a tree."])
    assert translation.hypotheses[0][0] == "Anna sieht einen Baum."


def test_the_loss_of_two_passes_by_hand():
    # Of two tokens, the first pass gives the label 1/2, the second 1/4: ln 2 and ln 4. KL(p‖q) +
    # KL(q‖p) is (1/2 - 1/4) ln 2 + (1/2 - 3/4) ln (2/3) = ln 3 / 4. The second place is padding.
    class Untrained(keras.Model):
        def call(self, inputs):
            return inputs

    model = train_with_fit.RDrop(Untrained(), consistency=8.0)
    model.compile("sgd", MaskedLabelSmoothedCrossentropy(0.0))
    first, second = (
        np.log([[[*probabilities], [0.9, 0.1]]]) for probabilities in ((0.5, 0.5), (0.75, 0.25))
    )
    loss = model.compute_loss(
        y=np.array([[1, 0]]), y_pred=np.concatenate([first, second]).astype("float32")
    )
    expected = (np.log(2) + np.log(4)) / 2 + 8 / 4 * np.log(3) / 4
    np.testing.assert_allclose(keras.ops.convert_to_numpy(loss), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_search_of_one_s_own_keeps_its_constraints(run, tiny_model_dir):
    def translations(*arguments):
        printed = run(
            "constrained_search", tiny_model_dir, "--text", "Anna sees a tree.", *arguments
        )
        return re.findall(r"^    (?:free|constrained): +(.*) \(-\d", printed, re.MULTILINE)

    free, other = translations("--never", "Baum")
    assert free == "Anna hat einen Baum, sieht!" and "Baum" not in other
    assert translations("--never", "Brücke", "--surely", "Baum") == [free, free]


def test_a_search_waits_for_a_phrase():
    def step(token_ids, parents, position, state):
        # Of the start 0, the end 1, and the tokens 2 and 3. Without the end, 2 has 0.75.
        logits = tf.math.log([0.0, 0.6, 0.3, 0.1])
        return tf.broadcast_to(logits, [*token_ids.shape, 4]), state

    def best(step, state):
        hypotheses = beam_search(
            step, state, [5], max_length=5, start_ids=0, end_ids=1, length_penalty=0.0
        )
        return hypotheses.token_ids[0, 0].numpy().tolist(), float(tf.exp(hypotheses.scores[0, 0]))

    assert best(step, ()) == ([1, 0, 0, 0, 0], pytest.approx(0.6))
    constrained = best(*constrained_search.surely(step, (), [2], end_id=1, batch_size=1))
    assert constrained == ([2, 1, 0, 0, 0], pytest.approx(0.75 * 0.6))
    constrained = best(*constrained_search.surely(step, (), [2, 2], end_id=1, batch_size=1))
    assert constrained == ([2, 2, 1, 0, 0], pytest.approx(0.75 * 0.75 * 0.6))


@pytest.mark.slow
def test_a_file_is_translated_in_blocks_and_goes_on_where_it_was_stopped(
    run, tiny_model_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(batch_translation, "LINES_PER_BLOCK", 3)
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        "".join(json.dumps({"id": i, "en": text}) + "\n" for i, text in enumerate(TEXTS))
    )
    assert (
        run("batch_translation", tiny_model_dir, source, target, "--field", "en")
        == "3 lines\n4 lines\n"
    )
    whole = target.read_bytes()
    rows = [json.loads(line) for line in whole.splitlines()]
    translations = Translator.load(tiny_model_dir).translate(TEXTS)
    best = [translation.hypotheses[0] for translation in translations]
    for i, (row, text, (translation, score)) in enumerate(zip(rows, TEXTS, best)):
        assert (row["id"], row["en"], row["translation"], row["truncated"]) == (
            i,
            text,
            translation,
            False,
        )
        assert row["score"] == pytest.approx(score, abs=1e-4)

    # Killed in the middle of its second line.
    target.write_bytes(whole[: whole.index(b"\n") + 9])
    printed = run("batch_translation", tiny_model_dir, source, target, "--field", "en")
    assert printed == "1 lines are there already\n4 lines\n"
    again = [json.loads(line) for line in target.read_bytes().splitlines()]
    assert [row["translation"] for row in again] == [row["translation"] for row in rows]


@pytest.fixture(scope="module")
def url(tiny_model_dir):
    translator = Translator.load(tiny_model_dir)
    signature = SIGNATURES["serving_default"]
    api = RestApi(
        "tiny",
        {
            "serving_default": ServedFunction(
                signature.inputs, graph_of(signature, translator.graph)
            )
        },
        128,
    )
    with serving(api) as port:
        yield f"http://localhost:{port}/v1/models/tiny"


def ask(url, text):
    # Without any package but Python's own.
    command = [sys.executable, "-I", "-S", FOLDER / "rest_client.py", "--url", url]
    return subprocess.run(command, input=text, capture_output=True, text=True)


@pytest.mark.slow
def test_the_client_translates_by_rest(url):
    done = ask(url, "\n".join([*TEXTS, "a" * 3000]))
    assert done.returncode == 0, done.stderr
    *lines, _ = done.stdout.splitlines()
    assert lines == [
        "Anna hat einen Baum, sieht!",
        "Zoë hat zwei Äpfel, kauft!",
        "",
        "Anna hat einen Baum, sieht!",
    ]
    assert done.stderr == f"the end was not read: {'a' * 60}…\n"


def test_the_client_says_what_the_server_refuses(url):
    done = ask(url.replace("tiny", "other"), "a")
    assert done.returncode == 1
    assert (
        "404 this server has /v1/models/tiny, version 1; received" in done.stderr
        and done.stdout == ""
    )


@pytest.mark.long
def test_whole_runs_reach_their_figures(run, tmp_path):
    assert float(re.search(r"^BLEU ([\d.]+)", run("whole_path", tmp_path), re.MULTILINE)[1]) > 75
    printed = run("fine_tuning", tmp_path / "model", tmp_path / "swiss")
    expected, _, after = re.findall(r"^    \w+: (.*)$", printed, re.MULTILINE)
    assert "ß" not in after and "ss" in expected
    printed = run("constrained_search", tmp_path / "model", "--surely", "ihn")
    free, constrained = re.findall(r"^    \w+: +(.*) \(-", printed, re.MULTILINE)
    assert "ihn" not in free.split() and "ihn" in constrained.split()
