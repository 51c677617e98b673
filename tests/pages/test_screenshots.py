"""The screenshots that `make pictures` takes."""

import os
import pathlib
import sys

import pytest
from fresh_process import run_python

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"


def test_the_screenshots_are_taken_and_shown(tiny_model_dir, tmp_path):
    programs = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": programs, "PYTHONPATH": "tests"}
    run_python("-m", "docs.screenshots", tiny_model_dir, tmp_path, cwd=ROOT, env=environment)
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in ASSETS.glob("*.png")
    }
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5_000
        assert (ASSETS / path.name).stat().st_size < 100_000
        assert f"](assets/{path.name})" in pages
