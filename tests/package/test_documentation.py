"""The documentation names what exists: public names, files, commands and their options."""

import pathlib
import re
import shlex

import pytest

import keras_transformer
from keras_transformer import decoding, models
from keras_transformer.commands.main import _parse

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_every_public_name_is_in_the_reference():
    reference = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    documented = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)", reference, re.MULTILINE)}
    public = {*keras_transformer.__all__, "Translator", *decoding.__all__, *models.__all__}
    # Types of arguments and results, described where they are used.
    assert public - documented == {"Generated", "Step"}


@each_page
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in links if not link.startswith(("http://", "https://", "#"))]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def commands_of(page):
    """The lines of a page's shell blocks that run the command line, without what follows a pipe or a redirection."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            _, command, arguments = line.partition("keras-transformer ")
            if command:
                words = shlex.split(arguments, comments=True)
                ends = [place for place, word in enumerate(words) if word in ("<", ">", "|", "2>", "&")]
                yield [word for word in words[: min(ends, default=None)] if word != "…"]


def test_the_pages_have_commands():
    assert len([words for page in PAGES for words in commands_of(page)]) > 30


@each_page
def test_commands_have_their_options(page, capsys):
    for words in commands_of(page):
        try:
            _parse(words)
        except SystemExit:
            message = capsys.readouterr().err
            # An example may leave out what it is not about.
            assert "the following arguments are required" in message, (words, message)
