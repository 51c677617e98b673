"""The pictures that `make pictures` draws: those that the documentation shows, and small."""

import pathlib
import shutil

import pytest
from fresh_process import run_python
from test_curves import LOG

ROOT = pathlib.Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"


@pytest.mark.slow
def test_the_pictures_are_drawn_and_shown(tiny_model_dir, tmp_path):
    model_dir, folder = shutil.copytree(tiny_model_dir, tmp_path / "model"), tmp_path / "pictures"
    (model_dir / "log.csv").write_text(LOG)
    folder.mkdir()
    run_python("-m", "docs.pictures", model_dir, folder, cwd=ROOT)
    pictures = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert {*pictures} == {path.name for path in ASSETS.glob("*.svg")}
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    for name, picture in pictures.items():
        assert picture.count("</svg>") == 1 and len(picture) < 100_000
        assert len((ASSETS / name).read_bytes()) < 100_000
        assert f"](assets/{name})" in pages
