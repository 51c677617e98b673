"""`make docs` fails on a broken page: .ci/site_hooks.py and `validation` in mkdocs.yml check it."""

import contextlib
import logging
import pathlib
import re

import griffe
import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config

from docs import pictures

ROOT = pathlib.Path(__file__).parents[2]
PAGE = """# A page

[Here](#a-page), [there](other.md#another-page) and [a file](../Makefile).

![A picture](assets/flow.svg)

=== "A tab"

    ```python title="TensorFlow"
    a = 1 < 2
    ```
"""
OTHER = "# Another page\n\n```sh\nls\n```\n"
# A fault of a page, and its warning.
FAULTS = {
    "```python tensorflow\nx = 1\n```": "line 3 is not rendered as code",
    "```sh\nls": "line 3 is not rendered as code",
    "[x](none.md)": "'none.md', but the target is not found",
    "[x](page.md#none)": "does not contain an anchor '#none'",
    "[x](../none.py)": "a link leads to none.py, which does not exist",
    "![x](assets/none.svg)": "'assets/none.svg', but the target is not found",
}


class Messages(logging.Handler):
    """Keeps warnings."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def warnings_of(folder, changed):
    """Builds a small site as `make docs` builds the documentation."""
    flow = (ROOT / "docs" / "assets" / "flow.svg").read_text(encoding="utf-8")
    files = {"page.md": PAGE, "other.md": OTHER, "assets/flow.svg": flow, **changed}
    (folder / "docs" / "assets").mkdir(parents=True)
    for name, text in files.items():
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(folder / "docs"),
        site_dir=str(folder / "site"),
        nav=[name for name in files if name.endswith(".md")],
        plugins=["search"],
        strict=False,
        extra_css=[],
        extra_javascript=[],
    )
    handler = Messages()
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        build(config)
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    return handler.messages


@pytest.fixture(scope="module")
def _in_the_clone():
    with contextlib.chdir(ROOT):
        yield


@pytest.fixture(scope="module")
def whole(_in_the_clone, tmp_path_factory):
    return warnings_of(tmp_path_factory.mktemp("whole"), {})


@pytest.fixture(scope="module")
def broken(_in_the_clone, tmp_path_factory):
    pages = {f"fault-{i}.md": f"# A page\n\n{fault}\n" for i, fault in enumerate(FAULTS)}
    return warnings_of(tmp_path_factory.mktemp("broken"), pages | {"assets/flow.svg": "<svg/>"})


def test_a_whole_page_has_no_warnings(whole):
    # The links of README.md and CONTRIBUTING.md lead to pages that this site does not have.
    assert [message for message in whole if "leads nowhere" not in message] == []


@pytest.mark.parametrize("number, message", enumerate(FAULTS.values()))
def test_a_broken_page_is_found(number, message, broken):
    of_page = [warning for warning in broken if f"fault-{number}.md" in warning]
    assert len(of_page) == 1 and message in of_page[0], of_page


def test_a_picture_without_a_fingerprint_is_found(broken):
    (message,) = [warning for warning in broken if "make pictures" in warning]
    assert "flow.svg: its data has changed" in message


def test_warnings_fail():
    assert load_config(str(ROOT / "mkdocs.yml"))["strict"] is True


def test_a_link_of_the_readme_that_leads_nowhere_is_found(whole):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(docs/([\w/-]+)\.md", readme))
    nowhere = " ".join(whole)
    assert linked and all(f"README.md: docs/{path}.md#" in nowhere for path in linked)


def test_the_pictures_are_of_todays_data(monkeypatch, tmp_path):
    assert pictures.stale(ROOT / "docs" / "assets") == []
    # Another number in the data.
    monkeypatch.setattr(pictures, "RESULTS", tmp_path)
    for path in (ROOT / "docs" / "results").glob("*.*"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8").replace("1", "2"))
    changed = {path.name for path in pictures.stale(ROOT / "docs" / "assets")}
    assert changed == {"results.svg", "table1.svg"}


@pytest.fixture(scope="module")
def package():
    extension = griffe.load_extensions(str(ROOT / ".ci" / "site_hooks.py"))
    return griffe.load("keras_transformer", search_paths=[str(ROOT)], extensions=extension)


def types_of(documented):
    """The type of each argument in the reference."""
    parsed = griffe.parse_google(documented.docstring, warnings=False)
    return {
        entry.name: str(entry.annotation)
        for section in parsed
        if section.kind in ("parameters", "attributes", "other parameters")
        for entry in section.value
    }


def test_the_reference_has_types_that_people_read(package):
    attention = types_of(package["layers.multi_head_attention.MultiHeadAttention"])
    assert attention["num_heads"] == "int" and attention["value_dim"] == "int or None"
    assert attention["output_shape"] == "int, tuple of ints, or None"
    search = types_of(package["decoding.beam_search.beam_search"])
    assert search["end_ids"] == "int or sequence of int"
    assert search["max_lengths"] == "int tensor (batch) or sequence of int"
    config = package["config.model.TransformerConfig"]
    assert str(config.parameters["num_layers"].default) == "6"
    assert str(config.parameters["d_model"].annotation) == "int"
