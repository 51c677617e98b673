"""The documentation names what exists: public names and files; test_documented_commands.py has its commands."""

import pathlib
import re

import pytest

import keras_transformer
from keras_transformer import decoding, models

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
