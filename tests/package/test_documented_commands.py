"""Every command on the pages is one that exists: its program, files and options, with values that its rules allow."""

import argparse
import configparser
import importlib
import importlib.util
import json
import pathlib
import re
import runpy
import shlex
import subprocess
import sys

import pytest
import sacrebleu
import yaml
from google.protobuf import text_format
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.training.recipe import load_recipe
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from keras_transformer.commands import main, options
from keras_transformer.commands.check_data import check_text_options
from keras_transformer.config import Config, TransformerConfig
from keras_transformer.model_dir import ModelDir

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
# Words of a shell, and programs of any Linux, whose options are not checked.
SHELL = {
    *(".", "cat", "cd", "cut", "do", "done", "echo", "exec", "export", "for", "head", "ls", "mkdir", "paste"),
    *("printf", "sort", "tail", "tar", "wc"),
}
# Those that the pages use, of TensorFlow Serving's `model_servers/main.cc`; no test runs the server.
SERVER_FLAGS = {
    *("port", "rest_api_port", "model_name", "model_base_path", "model_config_file", "enable_batching"),
    *("model_config_file_poll_wait_seconds", "batching_parameters_file", "monitoring_config_file"),
    *("tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism", "grpc_channel_arguments"),
    *("allow_version_labels_for_unavailable_models",),
}


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands_of(script):
    """The commands of a script of a shell, each as its words, without redirections and variables before them."""
    script = re.sub(r"(^|[ \t])#.*", "", script.replace("\\\n", " "), flags=re.MULTILINE)
    words = shlex.shlex(script, posix=True, punctuation_chars=";|&<>\n")
    words.commenters, words.whitespace, words.whitespace_split = "", " \t", True
    command, is_file = [], False
    for word in [*words, "\n"]:
        if set(word) <= set(";|&\n"):
            if command:
                yield command
            command = []
        elif set(word) <= set("<>"):
            is_file = True
        elif is_file:
            is_file = False
        elif command or not re.match(r"[A-Z_]+=", word):
            command.append(word)


def all_commands(page):
    """Those of the blocks of a page, and those within its lines that have arguments."""
    scripts = blocks(page, "sh")
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    inline = [script for script in re.findall(r"`([^`\n]+ [^`\n]+)`", prose) if script.split()[0] in CHECKS]
    # The prose may leave out what it is not about.
    inline = [f"{script} …" if script.startswith("keras-transformer ") else script for script in inline]
    return [command for script in (*scripts, *inline) for command in commands_of(script)]


class Parsed(BaseException):
    """The options of a program were right."""

    def __init__(self, options):
        self.options = options


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """Runs a program until its options are parsed, and returns them."""
    whole = argparse.ArgumentParser.parse_args

    def parse_args(self, *arguments):
        assert not self.allow_abbrev
        raise Parsed(whole(self, *arguments))

    def parse(run, words):
        with monkeypatch.context() as patched, pytest.raises(Parsed) as parsed:
            patched.setattr(argparse.ArgumentParser, "parse_args", parse_args)
            patched.setattr(sys, "argv", ["program", *words])
            run()
        return parsed.value.options

    # The files and directories of an example exist.
    monkeypatch.setattr(options, "_is_file", lambda path: True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "tests" / "layers")
    return parse


def check_own(words, parse):
    if words in [[name, "…"] for name in ("--help", *main.COMMANDS)]:
        return
    is_whole = "…" not in words
    # What an example leaves out: the value of an option, or further options.
    words = ["text" if word == "…" and before.startswith("--") else word for before, word in zip(["", *words], words)]
    words = [word for word in words if word != "…"]
    given = parse(
        lambda: main._parse(None), words if is_whole or "--model-dir" in words else [*words, "--model-dir", "a"]
    )
    for name, rule in given.rules.items():
        value = getattr(given, name.removeprefix("--").replace("-", "_"))
        if value is not None and rule is options.ExistingDirectory:
            make_model_dir(pathlib.Path(value))
    options.check_options(given)
    if given.command == "train":
        if is_whole:
            check_text_options(given, needs_validation=True)
        if given.config != "recipe.yaml":
            load_recipe(given.config, given.set, ModelDir(given.init_from) if given.init_from else None)


def make_model_dir(path):
    path.mkdir(parents=True, exist_ok=True)
    ModelDir(path).write_config(Config(TransformerConfig(source_vocab_size=10, target_vocab_size=10)))


def check_python(words, parse):
    while words and words[0] == "-W":
        words = words[2:]
    if words[:2] == ["-m", "venv"] or words[:2] == ["-m", "pytest"]:
        assert all((ROOT / word).exists() for word in words[2:] if word.endswith(".py"))
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]), words[1]
        if len(words) > 2 and not words[1].startswith("keras_transformer"):
            parse(importlib.import_module(words[1]).main, words[2:])
    else:
        assert (ROOT / words[0]).is_file(), words[0]
        if words[0].startswith("tests/") and "--table" not in words:
            parse(lambda: runpy.run_path(str(ROOT / words[0]), run_name="__main__"), words[1:])


def check_make(words, parse):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)", makefile.replace("\\\n", ""), re.MULTILINE)[1].split()
    assert [word for word in words if "=" not in word and word not in targets] == []
    assert [word for word in words if "=" in word and f"$({word.partition('=')[0]}" not in makefile] == []


def check_pip(words, parse):
    assert words[0] == "install"
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = {extra for word in words for extra in re.findall(r"^\.\[(.*)\]$", word) for extra in extra.split(",")}
    assert extras <= {*setup["options.extras_require"]}
    known = (ROOT / "setup.cfg").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words[1:]:
        if word.startswith("."):
            continue
        name = re.match(r"[\w-]*", word)[0]
        assert name in known and (name == word or name.startswith("-") or word[len(name) :][0] == "[" or word in known)


def check_curl(words, parse):
    if words[0] == "-L":  # wmt14.md's archives.
        return
    address, data, body = words
    assert re.fullmatch(r"localhost:8501/v1/models/en-de:predict", address) and data == "-d"
    request = json.loads(body)
    signature = SIGNATURES[request.pop("signature_name", "serving_default")]
    assert {*request} in ({"instances"}, {"inputs"})
    (given,) = request.values()
    for row in given if "instances" in request else [given]:
        names = {*row} if isinstance(row, dict) else {"text"}
        assert names == {*signature.inputs}


def check_server(words, parse):
    flags = [re.match(r"--(\w+)", word)[1] for word in words if word.startswith("--")]
    assert {*flags} <= SERVER_FLAGS


def check_docker(words, parse):
    assert words[0] == "run" and "tensorflow/serving:latest" in words
    check_server(words[words.index("tensorflow/serving:latest") + 1 :], parse)


def check_sacrebleu(words, parse):
    known = [sacrebleu.DATASETS[words[words.index("--test-set") + 1]]]
    assert words[words.index("--language-pair") + 1] in known[0].langpairs


CHECKS = {
    "keras-transformer": check_own,
    "python": check_python,
    "python3": check_python,
    "python3.11": check_python,
    "make": check_make,
    "pip": check_pip,
    "curl": check_curl,
    "docker": check_docker,
    "tensorflow_model_server": check_server,
    "sacrebleu": check_sacrebleu,
}


@each_page
def test_each_command_has_its_options(page, parse):
    for program, *words in all_commands(page):
        if program == "srun":
            program, *words = words
        name = re.sub(r"^[\w.-]*/bin/", "", program)
        if name not in SHELL:
            print(page.name, name, *words)  # Shown when it fails.
            CHECKS[name](words, parse)


def test_the_pages_have_commands():
    programs = [program for page in PAGES for program, *_ in all_commands(page)]
    assert programs.count("keras-transformer") > 50 and programs.count("python") > 15 and programs.count("curl") > 5


@each_page
def test_blocks_are_in_their_languages(page):
    for script in blocks(page, "sh"):
        checked = subprocess.run(["sh", "-n"], input=script.replace("…", ""), text=True, capture_output=True)
        assert checked.stderr == ""
    for code in blocks(page, r"python[ \w]*"):
        compile(code, page.name, "exec")
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, ""):
        if text.startswith("model_config_list"):
            text_format.Parse(text, ModelServerConfig())


@each_page
def test_blocks_of_yaml_are_manifests_or_parts_of_a_recipe(page, tmp_path):
    for text in blocks(page, "yaml"):
        if "apiVersion" in text:
            assert all({"apiVersion", "kind", "metadata", "spec"} == {*part} for part in yaml.safe_load_all(text))
        else:
            (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
            load_recipe(tmp_path / "recipe.yaml")
