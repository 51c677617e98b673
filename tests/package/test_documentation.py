"""The documentation names what exists: files, public names, and commands with options that their
checks allow."""

import argparse
import importlib
import importlib.util
import json
import pathlib
import re
import runpy
import shlex
import sys
import textwrap

import pytest

import keras_transformer
from keras_transformer import decoding, models
from keras_transformer.commands import main, options
from keras_transformer.commands.train import check_text_options
from keras_transformer.config import Config, TransformerConfig
from keras_transformer.export.signatures import SIGNATURES
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_every_public_name_is_in_the_reference():
    reference = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md")
    )
    documented = {
        name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", reference, re.MULTILINE)
    }
    public = {*keras_transformer.__all__, "Translator", *decoding.__all__, *models.__all__}
    # Types of arguments and results, described where they are used.
    assert public - documented == {"Generated", "Step"}


@each_page
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [
        link.partition("#")[0]
        for link in links
        if not link.startswith(("http://", "https://", "#"))
    ]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def blocks(page, language):
    """The blocks of a language; those in tabs are indented."""
    found = re.findall(
        rf"^( *)```{language}(?: title=.*)?\n(.*?)^\1```$",
        page.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return [textwrap.dedent(code) for _, code in found]


def commands_of(script):
    """The commands of a script of a shell, each as its words, without redirections and variables
    before them."""
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
    prose = re.sub(
        r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    inline = [
        script
        for script in re.findall(r"`([^`\n]+ [^`\n]+)`", prose)
        if script.split()[0] in CHECKS
    ]
    # The prose may leave out what it is not about.
    inline = [
        f"{script} …" if script.startswith("keras-transformer ") else script for script in inline
    ]
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
    return parse


def check_own(words, parse):
    if words in [[name, "…"] for name in ("--help", *main.COMMANDS)]:
        return
    is_whole = "…" not in words
    # What an example leaves out: the value of an option, or further options.
    words = [
        "text" if word == "…" and before.startswith("--") else word
        for before, word in zip(["", *words], words)
    ]
    words = [word for word in words if word != "…"]
    given = parse(
        lambda: main._parse(None),
        words if is_whole or "--model-dir" in words else [*words, "--model-dir", "a"],
    )
    for name, check in given.checks.items():
        value = getattr(given, name.removeprefix("--").replace("-", "_"))
        if value is not None and check is options.existing_directory:
            make_model_dir(pathlib.Path(value))
    options.check_options(given)
    if given.command == "train":
        if is_whole:
            check_text_options(given, needs_validation=True)
        if given.config != "recipe.yaml":
            load_recipe(
                given.config, given.set, ModelDir(given.init_from) if given.init_from else None
            )


def make_model_dir(path):
    path.mkdir(parents=True, exist_ok=True)
    ModelDir(path).write_config(
        Config(TransformerConfig(source_vocab_size=10, target_vocab_size=10))
    )


def check_python(words, parse):
    if words[:2] == ["-m", "joeynmt"] or words[0] == "scripts/build_vocab.py":
        return  # Commands of JoeyNMT, in coming-from.md.
    if words[0] in ("translate_int8.py", "translate_by_server.py"):
        return  # Programs that large-files.md and latency.md show.
    if words[:2] == ["-m", "venv"] or words[:2] == ["-m", "pytest"]:
        assert all((ROOT / word).exists() for word in words[2:] if word.endswith(".py"))
    elif "-c" in words:
        compile(words[words.index("-c") + 1], "-c", "exec")
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]), words[1]
        if len(words) > 2 and not words[1].startswith("keras_transformer"):
            parse(importlib.import_module(words[1]).main, words[2:])
    else:
        assert (ROOT / words[0]).is_file(), words[0]
        if words[0].startswith("tests/"):
            parse(lambda: runpy.run_path(str(ROOT / words[0]), run_name="__main__"), words[1:])


def check_make(words, parse):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)", makefile.replace("\\\n", ""), re.MULTILINE)[1].split()
    assert [word for word in words if "=" not in word and word not in targets] == []
    assert [
        word for word in words if "=" in word and f"$({word.partition('=')[0]}" not in makefile
    ] == []


def check_curl(words, parse):
    if words[0] == "-L":  # wmt14.md's archives.
        return
    if words[0] == "-s":  # latency.md, which prints the time alone.
        assert words[1:5] == ["-o", "/dev/null", "-w", r"%{http_code} %{time_total}\n"]
        words = words[5:]
    address, data, body = words
    assert (
        re.fullmatch(r"localhost:8501/v1/models/(en-de|servable):predict", address) and data == "-d"
    )
    request = json.loads(body)
    signature = SIGNATURES[request.pop("signature_name", "serving_default")]
    assert {*request} in ({"instances"}, {"inputs"})
    (given,) = request.values()
    for row in given if "instances" in request else [given]:
        names = {*row} if isinstance(row, dict) else {"text"}
        assert names == {*signature.inputs}


CHECKS = {
    "keras-transformer": check_own,
    **dict.fromkeys(["python", "python3", "python3.11"], check_python),
    "make": check_make,
    "curl": check_curl,
}


@each_page
def test_each_command_has_its_options(page, parse):
    for program, *words in all_commands(page):
        if program == "srun":
            program, *words = words
        name = re.sub(r"^[\w.-]*/bin/", "", program)
        if name in CHECKS:
            print(page.name, name, *words)  # Shown when it fails.
            CHECKS[name](words, parse)


def test_the_server_of_the_readme_has_the_model_of_the_request():
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("\n", " ")
    requested = set(re.findall(r"/v1/models/([^:/]+):predict", readme))
    servables = re.findall(r"serve --servable (\S+)", readme)
    assert requested == {path.rpartition("/")[2] for path in servables} == {"en-de"}


def test_the_readme_begins_as_the_home_page():
    """With the same code, which tests of both pages run, and the same commands."""
    home = ROOT / "docs" / "index.md"
    for language in ("python", "sh"):
        of_readme, of_home = blocks(ROOT / "README.md", language), blocks(home, language)
        assert of_readme[0] == of_home[0]
    assert blocks(ROOT / "README.md", "sh")[1] == blocks(home, "sh")[1]


def test_the_pages_have_commands():
    programs = [program for page in PAGES for program, *_ in all_commands(page)]
    assert (
        programs.count("keras-transformer") > 50
        and programs.count("python") > 10
        and programs.count("curl") > 5
    )


@each_page
def test_blocks_are_in_their_languages(page, tmp_path):
    for code in blocks(page, "python"):
        compile(code, page.name, "exec")
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "yaml"):
        if "apiVersion" not in text:  # A manifest of Kubernetes; the others are parts of a recipe.
            (tmp_path / "recipe.yaml").write_text(text, encoding="utf-8")
            load_recipe(tmp_path / "recipe.yaml")
