"""The command line as a user meets it: mistakes end in one clear line, a non-zero exit, and nothing half-written."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer import Translator
from keras_transformer.attention_plot import source_attention
from keras_transformer.cli import main

COMMANDS = ("train", "translate", "evaluate", "score", "average", "export", "plot-attention")
ENGLISH = "the dog runs\na cat sleeps\n"
GERMAN = "der hund rennt\neine katze schläft\n"


@pytest.fixture
def text(tmp_path):
    """Writes files into the test's folder and gives their paths."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def fails(capsys):
    """Runs a command that must fail, and gives its one line on standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert stopped.value.code not in (0, None)
        assert captured.out == ""
        lines = [line for line in captured.err.splitlines() if not line.startswith(("precision: ", "vocabulary: "))]
        assert len(lines) == 1, captured.err
        return lines[0]

    return run


def train_arguments(text, source=ENGLISH, target=GERMAN, **options):
    arguments = {
        "--source": text("train.en", source),
        "--target": text("train.de", target),
        "--valid-source": text("valid.en", ENGLISH),
        "--valid-target": text("valid.de", GERMAN),
        "--config": "demo",
        **options,
    }
    return [part for pair in arguments.items() for part in pair]


@pytest.mark.parametrize(
    "source, target, expected",
    [
        (ENGLISH, "nur eine\n", ["train.en", "train.de", "2", "1"]),
        ("", "", ["train.en", "empty"]),
        (b"the dog\nthe \xff cat\n", "der\ndie\n", ["train.en", "line 2", "UTF-8"]),
    ],
    ids=["different lengths", "empty", "invalid UTF-8"],
)
def test_bad_text_is_named_and_no_model_directory_is_made(text, fails, tmp_path, source, target, expected):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text, source, target), "--model-dir", model_dir)
    for part in expected:
        assert part in message
    assert not model_dir.exists()


def test_a_vocabulary_larger_than_the_text_supports_is_refused(text, fails, tmp_path):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir)
    assert "tokenizer.vocab_size must be at most" in message and "received tokenizer.vocab_size=1500" in message
    assert not model_dir.exists()


@pytest.mark.parametrize(
    "override, expected",
    [
        ("model.d_modle=64", "unknown configuration key 'model.d_modle'; did you mean 'd_model'?"),
        ("modle.d_model=64", "unknown configuration key 'modle'; did you mean 'model'?"),
        ("model.dropout=1.5", "model.dropout must be at least 0 and below 1; received model.dropout=1.5"),
        ("model.num_layers=two", "model.num_layers must be of type int; received model.num_layers='two'"),
        ("training.average_last=9", "training.average_last must be at most keep_checkpoints="),
        ("d_model", "--set must be given SECTION.KEY=VALUE; received 'd_model'"),
    ],
)
def test_a_bad_configuration_value_is_named(text, fails, tmp_path, override, expected):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir, "--set", override)
    assert expected in message
    assert not model_dir.exists()


def test_an_unknown_key_in_a_recipe_is_named_with_the_file(text, fails, tmp_path):
    recipe = text("mine.yaml", "training:\n  step: 5\n")
    message = fails("train", *train_arguments(text, **{"--config": recipe}), "--model-dir", tmp_path / "model")
    assert message.endswith(f"{recipe}: unknown configuration key 'training.step'; did you mean 'steps'?")


def test_a_recipe_that_is_not_yaml_is_named_with_its_line(text, fails, tmp_path):
    recipe = text("mine.yaml", "model:\n  d_model: [1\n")
    message = fails("train", *train_arguments(text, **{"--config": recipe}), "--model-dir", tmp_path / "model")
    assert f"{recipe}, line 3: cannot be read as YAML" in message


def test_an_unknown_recipe_is_answered_with_the_known_ones(text, fails, tmp_path):
    message = fails("train", *train_arguments(text, **{"--config": "multi3k"}), "--model-dir", tmp_path / "model")
    assert "multi3k" in message and "multi30k" in message


def test_train_needs_all_four_files_or_a_data_set(text, fails, tmp_path):
    message = fails("train", "--source", text("a", ENGLISH), "--model-dir", tmp_path / "model")
    assert "--target" in message and "--tfds" in message


@pytest.mark.parametrize("command", ["translate", "evaluate", "score", "average", "export", "plot-attention"])
def test_a_directory_that_is_no_model_directory_is_refused(text, fails, tmp_path, command):
    arguments = {
        "evaluate": ["--source", text("a", ENGLISH), "--reference", text("b", GERMAN)],
        "score": ["--source", text("a", ENGLISH), "--target", text("b", GERMAN)],
        "export": ["--output", tmp_path / "servable"],
        "plot-attention": ["--text", "the dog", "--output", tmp_path / "picture.png"],
    }
    message = fails(command, "--model-dir", tmp_path, *arguments.get(command, []))
    assert f"{tmp_path}: not a model directory" in message
    assert not (tmp_path / "servable").exists()


def test_a_missing_ctranslate2_is_named_with_what_installs_it(fails, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    message = fails("export", "--model-dir", tmp_path, "--output", tmp_path / "out", "--format", "ctranslate2")
    assert message.endswith(
        "error: --format ctranslate2 needs the package ctranslate2: pip install 'ctranslate2>=4.8.5,<4.9'"
    )


@pytest.mark.parametrize("option", [("--beam-size", 1), ("--length-penalty", 1), ("--precision", "bfloat16")])
def test_settings_are_refused_where_they_would_be_lost(fails, tmp_path, option):
    arguments = ("--model-dir", tmp_path, "--output", tmp_path / "out", "--format", "ctranslate2")
    assert f"{option[0]}" in (message := fails("export", *arguments, *option))
    assert "must not be given with --format ctranslate2" in message


def run_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *map(str, arguments)],
        capture_output=True,
        **options,
    )


def test_a_mistake_ends_a_real_process_with_one_line_and_code_1(tmp_path):
    result = run_command("translate", "--model-dir", tmp_path, input=b"")
    assert result.returncode == 1
    assert result.stdout == b""
    assert result.stderr.count(b"\n") == 1 and b"Traceback" not in result.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['keras-transformer', '--help']; import keras_transformer.cli as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'yaml', 'jax'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert command in result.stdout


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        assert f"keras-transformer {command}" in capsys.readouterr().out


def test_translate_answers_every_line_with_one_line(tiny_model_dir):
    lines = [b"Anna sees a tree.", b"", b"the dog buys two apples.", b"\xff\xfe", b"  ", b"x" * 5000]
    result = run_command("translate", "--model-dir", tiny_model_dir, input=b"\n".join(lines) + b"\n")
    assert result.returncode == 0, result.stderr
    answers = result.stdout.decode("utf-8").split("\n")
    assert answers.pop() == ""
    assert len(answers) == len(lines)
    assert answers[0] == "Anna hat einen Baum, sieht!"
    assert answers[1] == answers[4] == ""
    assert answers == [answer.replace("\n", " ") for answer in Translator.load(tiny_model_dir)(lines)]
    # The one line that did not fit is named, on standard error.
    assert b"line 6:" in result.stderr and b"truncated to model.max_length=64" in result.stderr


def test_translate_n_best_gives_number_score_and_translation(tiny_model_dir):
    arguments = ("--model-dir", tiny_model_dir, "--n-best", 2, "--beam-size", 3)
    result = run_command("translate", *arguments, input=b"Anna sees a tree.\n")
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    assert [row[0] for row in rows] == ["1", "1"]
    assert float(rows[0][1]) >= float(rows[1][1])
    assert rows[0][2] == "Anna hat einen Baum, sieht!" != rows[1][2]


@pytest.fixture
def known_pairs(text):
    return {
        "--source": text("known.en", "Anna sees a tree.\nthe dog buys two apples.\n"),
        "--reference": text("known.de", "Anna hat einen Baum, sieht!\nder Hund hat zwei Äpfel, kauft!\n"),
    }


def test_evaluate_prints_scores_with_signatures_or_json(tiny_model_dir, known_pairs, capsys):
    arguments = ["evaluate", "--model-dir", str(tiny_model_dir)]
    arguments += [part for pair in known_pairs.items() for part in pair]
    main(arguments)
    printed = capsys.readouterr().out
    assert "BLEU = 100.00" in printed and "chrF2 = 100.00" in printed
    assert "case:mixed" in printed and "tok:13a" in printed
    main([*arguments, "--json"])
    result = json.loads(capsys.readouterr().out)
    assert result["bleu"]["score"] == pytest.approx(100)
    assert "tok:13a" in result["bleu"]["signature"] and set(result) == {"bleu", "chrf"}


def test_score_prefers_the_known_translation(tiny_model_dir, known_pairs, text, capsys):
    def scores(target):
        source = known_pairs["--source"]
        main(["score", "--model-dir", str(tiny_model_dir), "--source", source, "--target", target])
        return [float(line) for line in capsys.readouterr().out.splitlines()]

    right = scores(known_pairs["--reference"])
    wrong = scores(text("wrong.de", "der Hund hat zwei Äpfel, kauft!\nAnna hat einen Baum, sieht!\n"))
    assert len(right) == 2 and all(0 >= score > other for score, other in zip(right, wrong))


def test_plot_attention_draws_a_picture(tiny_model_dir, tmp_path, capsys):
    picture = tmp_path / "attention.png"
    arguments = ["plot-attention", "--model-dir", str(tiny_model_dir), "--output", str(picture)]
    main([*arguments, "--text", "Anna sees a tree."])
    assert capsys.readouterr().out == "Anna hat einen Baum, sieht!\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_attention_has_a_row_for_each_target_piece_that_adds_up_to_one(tiny_model_dir):
    weights, source, target, translation = source_attention(Translator.load(tiny_model_dir), "Anna sees a tree.")
    assert weights.shape == (2, len(target), len(source))
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
    assert source[-1] == target[-1] == "</s>"
    assert "".join(source[:-1]).replace("▁", " ").strip() == "Anna sees a tree."
    assert "".join(target[:-1]).replace("▁", " ").strip() == translation == "Anna hat einen Baum, sieht!"


def test_the_labels_of_a_picture_are_the_tokens_that_the_search_chose(tiny_model_dir):
    translator = Translator.load(tiny_model_dir)
    # Hardly ever the segmentation that the tokenizer chooses for the same text.
    translator.model.output_projection.embedding.token_table.assign_add(
        np.random.default_rng(0).normal(size=(320, 64), scale=0.3).astype("float32")
    )
    _, _, target, translation = source_attention(translator, "Anna sees a tree.")
    chosen = translator.search(tf.constant(["Anna sees a tree."])).token_ids.numpy()[0, 0]
    chosen = chosen[chosen != 0]
    assert target == translator.tokenizer.pieces(chosen)
    assert target[:-1] != translator.tokenizer.pieces(translator.tokenizer.tokenize([translation])[0].numpy())


def test_plot_attention_refuses_a_blank_text_and_an_unknown_suffix(tiny_model_dir, fails, tmp_path):
    arguments = ("plot-attention", "--model-dir", tiny_model_dir)
    assert "text must be a text that is not blank; received text=' '" in fails(
        *arguments, "--text", " ", "--output", tmp_path / "a.png"
    )
    message = fails(*arguments, "--text", "Anna", "--output", tmp_path / "a.doc")
    assert "output must be a file ending in .png, .svg, .pdf; received output=" in message
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_built_is_noticed_before_the_text_is_read(text, fails, tmp_path):
    model_dir = tmp_path / "model"
    # The text is too short for the vocabulary, but that is found out later.
    message = fails("train", *train_arguments(text), "--model-dir", model_dir, "--set", "model.activation=rleu")
    assert message.endswith(
        "error: model.activation must be the name of a Keras activation; received model.activation='rleu'"
    )
    assert not model_dir.exists()


@pytest.mark.parametrize("section", ["training:", "training: {}", "training: null"])
def test_a_value_may_be_set_in_an_empty_section_of_a_recipe(text, fails, tmp_path, section):
    model = "{num_layers: 1, d_model: 8, d_ff: 8, num_heads: 1}"
    recipe = text("mine.yaml", f"model: {model}\ntokenizer: {{vocab_size: 2000}}\n{section}\n")
    arguments = train_arguments(text, **{"--config": recipe})
    # It comes as far as the text, which is too short for the vocabulary.
    message = fails("train", *arguments, "--model-dir", tmp_path / "model", "--set", "training.steps=5")
    assert "tokenizer.vocab_size must be at most" in message


def test_a_section_that_is_no_mapping_is_named(text, fails, tmp_path):
    recipe = text("mine.yaml", "training: 5\n")
    for overrides in ((), ("--set", "training.steps=5")):
        arguments = train_arguments(text, **{"--config": recipe})
        message = fails("train", *arguments, "--model-dir", tmp_path / "model", *overrides)
        assert message.endswith(f"{recipe}: training must be a mapping; received training=5")


def test_a_mistake_is_blamed_on_the_file_or_on_the_value_that_was_set(text, fails, tmp_path):
    recipe = text("mine.yaml", "model: {num_heads: 8}\n")
    for overrides, blamed in (
        (("model.d_model=100",), "--set model.d_model=100"),
        (("model.num_heads=7",), "--set model.num_heads=7"),
        (("training.steps=5", "model.dropout=2"), "--set model.dropout=2"),
    ):
        arguments = [*train_arguments(text, **{"--config": recipe}), "--model-dir", tmp_path / "model"]
        for override in overrides:
            arguments += ["--set", override]
        assert f"error: {blamed}: model." in fails("train", *arguments)
