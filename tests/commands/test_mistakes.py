"""Mistakes on the command line end with one clear line and a non-zero exit code, and leave no
incomplete files."""

import contextlib
import dataclasses
import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading

import h5py
import pytest
import tensorflow as tf
from command_line import ENGLISH, GERMAN, train_arguments
from fresh_process import run_python

from keras_transformer import TransformerConfig
from keras_transformer.commands.main import COMMANDS, main
from keras_transformer.commands.options import Parser
from keras_transformer.config import Config, DataConfig, TrainingConfig
from keras_transformer.errors import ConfigError, DivergedError, LockedError, MemoryLimitError
from keras_transformer.model_dir import ModelDir

VOCABULARIES = dict(source_vocab_size=100, target_vocab_size=100)


@pytest.mark.parametrize(
    "command, message",
    [
        ("trian --source a.en", "argument COMMAND: invalid choice: 'trian'"),
        (
            "translate",
            "the following arguments are required: --model-dir (see keras-transformer translate "
            "--help)",
        ),
        (
            "translate --model-dir a --beam 4",
            "unrecognized arguments: --beam 4 (see keras-transformer --help)",
        ),
        (
            "export --model-dir a --output b --format tflite",
            "argument --format: invalid choice: 'tflite'",
        ),
        ("plot --output a.png", "the following arguments are required: --model-dir"),
    ],
)
def test_what_is_no_command_or_option_is_named(command, message, fails):
    said = fails(*shlex.split(command))
    assert said.startswith("keras-transformer") and f": error: {message}" in said


NO_TENSORFLOW = """
import contextlib, io, json, sys
for name in ("tensorflow", "tensorflow_text", "keras"):
    sys.modules[name] = None
from keras_transformer.commands.main import main
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            main(arguments)
        except SystemExit as stopped:
            print(json.dumps([said.getvalue(), stopped.code]))
"""
TEXT = "--source a.en --reference a.de"
PAIRS = "--source a.en --target a.de"
FOUR = f"{PAIRS} --valid-source a.en --valid-target a.de"
# Reading this text would be an error, so that other errors are found before it is read.
UNREAD = "--source empty --target empty --valid-source a.en --valid-target a.de"
PICTURE = "plot --text a --output a.html"
ONE_TRAINING_TEXT = (
    "give the training text in one way: by --source and --target, by --pairs, or by --tfds"
)
ONE_VALIDATION_TEXT = (
    "give the validation text in one way: by --valid-source and --valid-target, by --valid-pairs, "
    "or held out of the "
    "training text by --valid-fraction or --valid-size"
)
# All with `--model-dir trained`, unless they say otherwise.
MISTAKES = {
    "translate --beam-size 0": "--beam-size must be positive; received --beam-size=0",
    f"translate --beam-size {'9' * 50}": "--beam-size must be at most 1,000; received "
    "--beam-size=999",
    "translate --beam-size 2.5": "argument --beam-size: invalid int value: '2.5'",
    "translate --length-penalty nan": "--length-penalty must be at least 0 and finite; received",
    "translate --length-penalty 5.1": "--length-penalty must be at most 5; received "
    "--length-penalty=5.1",
    "translate --n-best 5": "--n-best must be at most decoding.beam_size=4 of trained/config.yaml; "
    "received --n-best=5",
    "translate --n-best 4 --beam-size 2": "--n-best must be at most --beam-size=2; received",
    "translate --seed 1": "--seed needs --sample",
    "translate --sample --n-best 2": "give either --sample or --n-best",
    "translate --documents --sample": "--documents cannot be combined with --sample, --n-best or "
    "--prefix",
    "translate --language de": "--language needs --documents",
    "translate --sample --top-p 1.5": "--top-p must be above 0 and at most 1; received --top-p=1.5",
    "translate --prefix absent": "--prefix must be a file that exists; received --prefix='absent'",
    "translate --tag de": "--tag must be a tag such as <bt> or >>de<<; received --tag='de'",
    "translate --model-dir ''": "--model-dir must be a text that is not empty; received "
    "--model-dir=''",
    "translate --model-dir a.en": "--model-dir must be a directory; received --model-dir='a.en'",
    "translate --model-dir absent": "absent: not a model directory (it has no config.yaml)",
    "translate --model-dir untrained": "untrained: no trained weights",
    f"evaluate {TEXT} --model-dir .": ".: not a model directory",
    f"evaluate {TEXT} --model-dir untrained": "untrained: no trained weights",
    f"evaluate {TEXT} --source absent.en": "--source must be a file that exists, or - for "
    "standard input; received",
    f"evaluate {TEXT} --reference untrained": "--reference must be a file that exists, or - for "
    "standard input",
    f"evaluate {TEXT} --source empty": "empty: the file is empty",
    f"score {PAIRS} --target 'a\nb'": "--target must be a file that exists, or - for standard "
    "input; received",
    f"score {PAIRS} --source - --target -": "can be read only once; received --source -, --target "
    "-",
    f"score {PAIRS} --model-dir 'many\nlines'": "many lines: not a model directory",
    "export --output b --model-dir .": ".: not a model directory",
    "export --output a.en": "--output must be a directory; received --output='a.en'",
    "export --output [x]*": "--output must be a path without any of * ? [ \\; received "
    "--output='[x]*'",
    "export --output ''": "--output must be a text that is not empty; received --output=''",
    "export --output a\udcff": "--output must be valid UTF-8; received --output='a\\udcff'",
    "export --output b --languages english": "--languages must be two languages, such as en-de; "
    "received",
    "export --output b --license ''": "--license must be a text that is not empty; received "
    "--license=''",
    "export --output b --license a\udcff": "--license must be valid UTF-8; received "
    "--license='a\\udcff'",
    "average": "trained: no checkpoints to average",
    "average --model-dir .": ".: not a model directory",
    "average --last 0": "--last must be positive; received --last=0",
    "average --last 1 --best 1": "give either --last or --best",
    "plot --text ' ' --output a.png": "--text must be a text that is not blank; received",
    "plot --text a --output a.doc": "--output must be a file ending in .png, .svg, .pdf or .html; "
    "received",
    "plot --text a\udcff --output a.png": "--text must be valid UTF-8; received --text='a\\udcff'",
    "plot --layer 1 --output a.png": "--layer needs --text",
    f"{PICTURE} --model-dir .": ".: not a model directory",
    f"{PICTURE} --model-dir trained untrained": "--text needs one --model-dir; received 2",
    f"{PICTURE} --layer 0": "--layer must be a positive number, all or last; received --layer='0'",
    f"{PICTURE} --head last": "--head must be a positive number or all; received --head='last'",
    f"{PICTURE} --layer 5": "--layer must be at most 4, the number of decoder layers in the model; "
    "received --layer='5'",
    f"{PICTURE} --head 5": "--head must be at most 4, the number of attention heads in the model; "
    "received --head='5'",
    "serve --port 65536": "--port must be at most 65,535; received --port=65536",
    "synthesize --output a": "give --source to distill, or --target to translate back",
    "synthesize --source a.en --sample --output a": "--sample is for back-translation",
    f"train {FOUR} --devices 99": "--devices must be at most 64; received --devices=99",
    f"train {FOUR} --config ''": "--config must be a text that is not empty; received --config=''",
    f"train {FOUR} --config absent.yaml": "absent.yaml: No such file or directory",
    f"train {FOUR} --config multi3k": "--config must be a .yaml file or one of demo, fine-tune",
    f"train {FOUR} --config key.yaml": "key.yaml, line 2: unknown configuration key 'training.step'; did "
    "you mean 'st",
    f"train {FOUR} --config open.yaml": "open.yaml, line 3: cannot be read as YAML",
    f"train {FOUR} --set d_model=8": "--set must be given SECTION.KEY=VALUE; received 'd_model=8'",
    f"train {FOUR} --set model.activation=rleu": "--set model.activation=rleu: model.activation "
    "must be",
    f"train {FOUR} --set model.d_modle=64": "unknown configuration key 'model.d_modle'; did you "
    "mean 'd_model'?",
    f"train {FOUR} --set model.dropout=2": "model.dropout must be at least 0 and below 1; "
    "received model.dropout=2",
    f"train {FOUR} --set data.weights=[1,2]": "data.weights must be a list of one number for each "
    "corpus, here",
    f"train {FOUR} --set data.source_script=Latn1": "data.source_script must be the name of a "
    "Unicode script",
    f"train {FOUR} --set data.target_script=Thai": "filters leave none of the 2 sentence pairs: 2 "
    "by target_",
    f"train {FOUR} --valid-target absent": "--valid-target must be a file that exists, a pattern "
    "of files such as "
    "'news-*.en.gz', or - for standard input",
    f"train {PAIRS}": ONE_VALIDATION_TEXT,
    f"train {PAIRS} --valid-source a.en": ONE_VALIDATION_TEXT,
    f"train {PAIRS} --valid-size 1 --valid-fraction 0.1": "give either --valid-fraction or "
    "--valid-size",
    f"train {PAIRS} --valid-size 1 --valid-pairs a.en": ONE_VALIDATION_TEXT,
    "evaluate --source a.en": "give the text in one way: by --source and --reference, or by "
    "--pairs",
    f"evaluate {TEXT} --pairs a.en": "give the text in one way: by --source and --reference",
    "score --target a.de": "give the text in one way: by --source and --target, or by --pairs",
    "build-shortlist": "give the text in one way: by --source and --target, or by --pairs",
    "compare --hypotheses a.de": "give the test sets in one way: by --source and --reference",
    f"train {FOUR} --valid-pairs a.en": ONE_VALIDATION_TEXT,
    f"train {PAIRS} --valid-fraction 1": "--valid-fraction must be above 0 and below 1; received",
    f"train {PAIRS} --valid-size 3": "--valid-size must be at most the number of different "
    "sentence pairs, 2",
    f"train {PAIRS} --pairs a.en --valid-size 1": ONE_TRAINING_TEXT,
    "train --source a.en --valid-size 1": ONE_TRAINING_TEXT,
    "train --pairs a.en --tfds x": ONE_TRAINING_TEXT,
    "train --pairs a.en --valid-size 1": "a.en: line 1 must have exactly one tab; received 'the "
    "dog runs'",
    "train --pairs b* --valid-size 1": "b*: no file matches this pattern",
    f"train {FOUR} --source a.de": "must have the same number of files; received 2 (a.de, a.en) and 1 "
    "(a.de)",
    f"train {FOUR} --source - --valid-source -": "can be read only once; received --source -, "
    "--valid-source -",
    f"build-shortlist --model-dir tagged {PAIRS} --links new": "set decoding.tag in "
    "tagged/config.yaml to one of <a>",
    f"score {PAIRS} --model-dir trained --reverse-model-dir tagged": "set decoding.tag in "
    "tagged/config.yaml",
    f"score {PAIRS} --model-dir tagged": "trained with tagged sources only; give --tag, one of "
    "<a>, <b>",
    "train --tfds ''": "--tfds must be a text that is not empty; received --tfds=''",
    f"train {UNREAD}": "empty: the text is empty",
    f"train {UNREAD} --model-dir trained": "no training_state.npz to resume from",
    f"train {UNREAD} --model-dir held": "another training run uses this directory: process ",
    f"train {UNREAD} --set 'decoding.tag=<bt>'": "--set decoding.tag=<bt>: decoding.tag must be "
    "null without data.tags; received decoding.tag='<bt>'",
    f"train {UNREAD} --set 'data.tags=[<a>]' 'data.valid_tags=[<a>]' 'decoding.tag=<b>'": "tag must "
    "be one of data.tags, <a>; received decoding.tag='<b>'",
    f"train {UNREAD} --set 'decoding.terms={{dog: Hund}}'": "decoding.terms needs a model that is "
    "trained with data.terms; received data.terms=0.0",
    f"train {UNREAD} --set tokenizer.kind=sentencepiece": "tokenizer.kind must be bpe, unigram or "
    "wordpiece without --init-from",
    f"train {UNREAD} --set 'data.tags=[<a>]' 'data.valid_tags=[<a>,<a>]'": "data.valid_tags must be "
    "a list of one tag or null for each corpus to validate on, here 1",
    f"train {UNREAD} --valid-source a.de": "must have the same number of files; received 2 (a.de, a.en)",
    f"check-data {UNREAD} --valid-source a.de": "must have the same number of files; received 2",
    "average --valid-source a.en": "give the validation text in one way: by --valid-source and "
    "--valid-target, or by --valid-pairs",
    f"compare {TEXT} --hypotheses empty --output folder.html --overwrite": "folder.html: this is a directory; "
    "give the path of a file",
    "synthesize --source empty --output a.en/b": "a.en/b.source: ",
}


def test_mistakes_are_found_before_tensorflow_is_loaded(text, tmp_path):
    text("a.en", ENGLISH), text("a.de", GERMAN), text("empty", "")
    for name in ("trained", "untrained", "tagged"):
        (tmp_path / name).mkdir()
        ModelDir(tmp_path / name).write_config(
            Config(TransformerConfig.preset("tiny", **VOCABULARIES))
        )
    settings = dict(
        training=TrainingConfig(guided_alignment=0.1), data=DataConfig(tags=["<a>", "<b>"])
    )
    tagged = ModelDir(tmp_path / "tagged")
    tagged.write_config(dataclasses.replace(tagged.read_config(), **settings))
    text("trained/best.weights.h5", "")
    text("tagged/best.weights.h5", "")
    text("key.yaml", "training:\n  step: 5\n"), text("open.yaml", "model:\n  d_model: [1\n")
    (tmp_path / "folder.html").mkdir()
    commands = []
    for command in MISTAKES:
        model_dir = "new" if command.startswith("train ") else "trained"
        given = "--model-dir" in command or command.startswith("check-data")
        commands.append(command if given else f"{command} --model-dir {model_dir}")
    held = ModelDir(tmp_path / "held")
    held.path.mkdir()
    with held.lock_for_training():
        said = run_python(
            "-c", NO_TENSORFLOW, input=json.dumps([*map(shlex.split, commands)]), cwd=tmp_path
        ).splitlines()
    assert len(said) == len(MISTAKES)
    for line, (command, expected) in zip(said, MISTAKES.items()):
        message, code = json.loads(line)
        assert message.count("\n") == 1 and expected in message, command
        assert message.startswith(f"keras-transformer {command.split()[0]}: error: "), message
        assert code == (2 if message.endswith(" --help)\n") else 1)


def test_workers_are_read_before_the_text(text, fails, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", "workers")
    arguments = train_arguments(text, "", "")
    assert "TF_CONFIG must be like" in fails("train", *arguments, "--model-dir", tmp_path / "new")


def text_options():
    """Each option of each command that takes a text or a path, with an example of its command."""
    for command, (add_options, _) in COMMANDS.items():
        parser = Parser(prog=command)
        add_options(parser)
        example, _, _ = parser.example.partition(" <")
        for action in parser._actions:
            takes_text = action.nargs != 0 and action.type in (None, str) and not action.choices
            if action.option_strings and takes_text:
                yield [command, *shlex.split(example)], action.option_strings[0]


@pytest.mark.parametrize("value", ["a\0.html", "a\ud800.html"])
def test_no_option_takes_characters_that_no_path_has(value, fails):
    options = [*text_options()]
    assert len(options) > 60
    for arguments, option in options:
        # The last one counts.
        message = fails(*arguments, option, value)
        assert f"{option} must be Unicode text without NUL characters; received" in message


@pytest.mark.parametrize("escape", ["\\0", "\\ud800"])
def test_no_value_of_a_recipe_has_characters_that_no_path_has(escape, text, fails):
    recipe = text("scores.yaml", f'data:\n  min_score: 1\n  scores: ["a{escape}"]\n')
    arguments = ["train", "--print-config", "--config", recipe]
    problem = "cannot be read as YAML (a text must be Unicode without NUL characters)"
    assert f"{recipe}, line 3: {problem}" in fails(*arguments)
    override = f'data.scores=["{escape}"]'
    message = fails("train", "--print-config", "--set", override)
    assert "a text must be Unicode without NUL characters" in message
    assert "--set data.scores" in message


OUTPUTS = {
    "augment --source a.en --output a --typos 1": "a.source",
    "synthesize --target a.en --output a": "a.source",
    "synthesize --source a.en --output a": "a.target",
    f"build-shortlist {PAIRS} --links a.html": "a.html",
    PICTURE: "a.html",
    f"compare {TEXT} --output a.html": "a.html",
}


@pytest.mark.parametrize(("arguments", "output"), OUTPUTS.items())
def test_a_file_that_exists_is_not_replaced_and_an_input_never(
    arguments, output, text, fails, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text("a.en", ENGLISH), text("a.de", GERMAN), text(output, "foreign")
    command, *options = shlex.split(arguments)
    model = [] if command == "augment" else ["--model-dir", "model"]
    message = fails(command, *model, *options)
    assert message.endswith(
        f"{output}: the file exists already; write to another one, or give --overwrite"
    )
    if (given := {"--source", "--target"} & {*options}) and command != "build-shortlist":
        (name,) = given
        options[options.index(name) + 1] = output
        message = fails(command, *model, *options, "--overwrite")
        assert message.endswith(
            f"{output}: this file is read as {name}; choose another output file"
        )
    assert (tmp_path / output).read_text() == "foreign"


@pytest.mark.parametrize("spelling", ["plain", "relative", "linked", "hard link"])
def test_a_file_of_the_model_directory_is_not_replaced(
    spelling, text, fails, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text("a.en", ENGLISH), text("a.de", GERMAN)
    (tmp_path / "model").mkdir(), (tmp_path / "other").symlink_to("model")
    (tmp_path / "model" / "config.yaml").write_text("format_version: 2\n")
    (tmp_path / "hard.yaml").hardlink_to(tmp_path / "model" / "config.yaml")
    output = {
        "plain": "model/config.yaml",
        "relative": "model/../model/./config.yaml",
        "linked": "other/config.yaml",
        "hard link": "hard.yaml",
    }[spelling]
    arguments = [*shlex.split(PAIRS), "--links", output, "--overwrite", "--model-dir", "model"]
    message = fails("build-shortlist", *arguments)
    assert f"{output}: this file belongs to the model directory model" in message
    assert (tmp_path / "model" / "config.yaml").read_text() == "format_version: 2\n"


def test_no_command_writes_to_files_of_the_model_directory(text, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text("a.en", ENGLISH), text("a.de", GERMAN)
    for command, output in (
        ("synthesize --target a.en --output model/evaluation", "model/evaluation.json"),
        (f"build-shortlist {PAIRS} --links model/checkpoints/a", "model/checkpoints/a"),
        (f"build-shortlist {PAIRS} --links model/log.csv", "model/log.csv"),
    ):
        message = fails(*shlex.split(command), "--model-dir", "model", "--overwrite")
        assert f"{output}: this file belongs to the model directory model" in message


@pytest.mark.parametrize(
    "source, target, expected",
    [
        (ENGLISH, "nur eine\n", ["train.en", "train.de", "2", "1"]),
        ("", "", ["train.en", "empty"]),
        (b"the dog\nthe \xff cat\n", "der\ndie\n", ["train.en", "line 2", "UTF-8"]),
    ],
    ids=["different lengths", "empty", "invalid UTF-8"],
)
def test_bad_text_is_named_and_no_model_directory_is_made(
    text, fails, tmp_path, source, target, expected
):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text, source, target), "--model-dir", model_dir)
    for part in expected:
        assert part in message
    assert not model_dir.exists()


def test_a_vocabulary_larger_than_the_text_supports_is_refused(text, fails, tmp_path):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir)
    assert (
        "tokenizer.vocab_size must be at most" in message
        and "received tokenizer.vocab_size=1500" in message
    )
    assert not model_dir.exists()


@pytest.mark.parametrize("format, package", [("ctranslate2", "ctranslate2"), ("onnx", "tf2onnx")])
def test_a_missing_package_of_a_format_is_named_with_its_extra(
    fails, tmp_path, monkeypatch, format, package
):
    monkeypatch.setitem(sys.modules, package, None)
    message = fails(
        "export", "--model-dir", tmp_path, "--output", tmp_path / "out", "--format", format
    )
    assert message.endswith(
        f"error: --format {format} needs the package {package}: in your clone of the repository, "
        f"run pip install -e '.[{format}]'"
    )


REFUSED = {
    "ctranslate2": [
        *(
            ("--beam-size", 1),
            ("--length-penalty", 1),
            ("--precision", "bfloat16"),
            ("--signatures", "score"),
        ),
        *(
            ("--no-verify",),
            ("--serving-default", "score"),
            ("--languages", "en-de"),
            ("--license", "MIT"),
        ),
    ],
    "hugging-face": [("--precision", "int8-weights"), ("--signatures", "score"), ("--no-verify",)],
    "onnx": [("--beam-size", 1), ("--languages", "en-de"), ("--compile",)],
}


@pytest.mark.parametrize(
    "format, option", [(format, option) for format in REFUSED for option in REFUSED[format]]
)
def test_settings_are_refused_where_they_would_be_lost(fails, tmp_path, format, option):
    message = fails(
        "export", "--model-dir", tmp_path, "--output", tmp_path / "out", "--format", format, *option
    )
    assert option[0] in message and f"must not be given with --format {format}" in message


def test_an_endless_line_is_one_line(tiny_model_dir, fails, monkeypatch):
    with open("/dev/zero") as zeros:
        monkeypatch.setattr(sys, "stdin", zeros)
        message = fails("translate", "--model-dir", tiny_model_dir)
    error = (
        "translate: error: standard input: line 1 must have at most 1,048,576 bytes; it has more"
    )
    assert message == f"keras-transformer {error}"


@pytest.mark.parametrize(
    ("stream", "name", "command"),
    [
        ("<&-", "input", "translate"),
        (">&-", "output", "translate"),
        (">&-", "output", "train --print-config"),
    ],
)
def test_a_closed_stream_is_one_line(tiny_model_dir, stream, name, command):
    arguments = [
        sys.executable,
        "-m",
        "keras_transformer",
        *command.split(),
        "--model-dir",
        str(tiny_model_dir),
    ]
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}', "sh", *arguments], capture_output=True, text=True
    )
    assert result.returncode == 1
    assert (
        result.stderr
        == f"keras-transformer {command.split()[0]}: error: standard {name} is closed\n"
    )


@contextlib.contextmanager
def endless_pipe(content):
    """The path of a pipe from which the content is read again and again."""
    reading, writing = os.pipe()

    def write():
        with contextlib.suppress(OSError):
            while True:
                os.write(writing, content)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()
        os.close(writing)


@pytest.mark.parametrize("line", ["dog\tHund\n", "dog\n", "\n"])
@pytest.mark.parametrize("option", ["--terms", "--keep"])
def test_terms_without_an_end_are_refused(tiny_model_dir, fails, tmp_path, option, line):
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model_dir)
    config = model_dir / "config.yaml"
    config.write_text(config.read_text().replace("placeholders: false", "placeholders: true"))
    # A glossary's first lines must not be wrong.
    lines = "".join(line.replace("dog", f"dog {i}") for i in range(6000))
    with endless_pipe(lines.encode()) as path:
        message = fails("translate", "--model-dir", model_dir, option, path)
    rule = "the file must have at most 5,000 terms, in 1,000,000 characters; it has more"
    assert message == f"keras-transformer translate: error: {path}: {rule}"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/dev/zero", "line 1 must have at most 1,048,576 bytes; it has more"),
        # Not of standard output, to which translations are written meanwhile.
        ("/proc/self/mem", "Input/output error"),
    ],
)
def test_prefixes_that_cannot_be_read_are_named(tiny_model_dir, fails, monkeypatch, path, problem):
    with open(__file__) as lines:
        monkeypatch.setattr("sys.stdin", lines)
        message = fails("translate", "--model-dir", tiny_model_dir, "--prefix", path)
    assert message == f"keras-transformer translate: error: {path}: {problem}"


def test_a_pipe_of_text_without_an_end_is_refused(fails, text, monkeypatch):
    monkeypatch.setattr("keras_transformer.text.lines._MAX_BYTES_IN_MEMORY", 2**20)
    with endless_pipe(b"A dog runs.\n") as path:
        message = fails("check-data", "--source", path, "--target", text("a.de", ["Ein Hund"]))
    assert f"{path}: text of a pipe is held in memory and must take at most" in message


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.model.sha256"])
def test_a_file_larger_than_any_of_its_kind_is_refused(tiny_model_dir, fails, tmp_path, name):
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model_dir)
    # A sparse file, which takes no room on the disk.
    os.truncate(model_dir / name, 2**40)
    limit = 2**16 if name.endswith(".sha256") else 2**26
    message = fails("translate", "--model-dir", model_dir)
    assert message.endswith(f"{model_dir / name}: the file must have at most {limit:,} bytes")


@pytest.mark.parametrize("kind", ["external link", "soft link", "external data"])
def test_weights_that_point_to_other_files_are_refused(tiny_model_dir, fails, tmp_path, kind):
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model_dir)
    # It would fit.
    secret = tmp_path / "secret.h5"
    shutil.copy(tiny_model_dir / "best.weights.h5", secret)
    with h5py.File(model_dir / "best.weights.h5", "r+") as file:
        names = []
        file.visititems(
            lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None
        )
        name = next(name for name in names if file[name].size > 1)
        shape, dtype = file[name].shape, file[name].dtype
        del file[name]
        if kind == "external link":
            file[name] = h5py.ExternalLink(str(secret), f"/{name}")
        elif kind == "soft link":
            file[name] = h5py.SoftLink(
                f"/{next(n for n in names if n != name and file[n].shape == shape)}"
            )
        else:
            file.create_dataset(name, shape, dtype, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    message = fails("translate", "--model-dir", model_dir)
    assert f"{model_dir}/best.weights.h5: the file is damaged ({name} is " in message


# What is an error of the user or of the machine, and what is a bug.


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("d_model must\nbe positive"), "d_model must be positive"),
        (DivergedError("the loss is nan"), "the loss is nan"),
        (
            LockedError("another training run uses this directory"),
            "another training run uses this directory",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a.en"),
            "a.en: No such file or directory",
        ),
        (OSError("a.h5: cannot be read"), "a.h5: cannot be read"),
        (MemoryLimitError("a request of 7 GiB"), "a request of 7 GiB"),
        (MemoryError(), "out of memory"),
        # As NumPy has it of an array that does not fit.
        (MemoryError("Unable to allocate 7 GiB"), "out of memory: Unable to allocate 7 GiB"),
        (
            tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\n\t [[node]]"),
            "out of memory: OOM when allocating tensor",
        ),
        (
            tf.errors.ResourceExhaustedError(None, None, "a/variables; No space left on device"),
            "the disk is full: a/variables; No space left on device",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_is_one_line(error, message, fails, monkeypatch):
    monkeypatch.setitem(COMMANDS, "train", COMMANDS["train"]._replace(run=raising(error)))
    assert fails("train", "--model-dir", "m") == f"keras-transformer train: error: {message}"


@pytest.mark.parametrize(
    "error", [ValueError("a shape"), KeyError("x"), tf.errors.InvalidArgumentError(None, None, "x")]
)
def test_a_bug_has_a_traceback(error, monkeypatch):
    monkeypatch.setitem(COMMANDS, "train", COMMANDS["train"]._replace(run=raising(error)))
    with pytest.raises(type(error)):
        main(["train", "--model-dir", "m"])


def raising(error):
    def run(options):
        raise error

    return run
