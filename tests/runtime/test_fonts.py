"""Fonts for pictures of texts in any script."""

import logging
import pathlib

import matplotlib
import pytest
from matplotlib import font_manager

from keras_transformer.runtime.fonts import font_families

FONTS = pathlib.Path(matplotlib.get_data_path(), "fonts", "ttf")


@pytest.fixture
def installed(monkeypatch):
    """The fonts that the system has: none but these."""
    fonts = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: fonts)
    monkeypatch.setitem(matplotlib.rcParams, "font.family", ["cmr10"])
    return fonts


def test_another_font_draws_what_the_default_one_lacks(installed, caplog):
    installed.append(str(FONTS / "DejaVuSans.ttf"))
    assert font_families(["A dog"]) == ["cmr10"]
    assert font_families(["A dog", "Пёс"]) == ["cmr10", "DejaVu Sans"]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("狗", "fonts-noto-cjk"),
        ("개", "fonts-noto-cjk"),
        ("สุนัข", "fonts-noto-core"),
        ("कुत्ता", "fonts-noto-core"),
        ("🂡", "fonts-symbola"),
    ],
)
def test_a_missing_font_is_named_by_its_package(installed, text, package, caplog):
    caplog.set_level(logging.WARNING)
    assert font_families([text]) == ["cmr10"]
    (message,) = caplog.messages
    assert f"the Debian package {package}, or" in message and text[0] in message


def test_a_damaged_font_is_left_out(installed, tmp_path, caplog):
    damaged = tmp_path / "a-sans.ttf"
    damaged.write_bytes(b"no font")
    installed += [str(damaged), str(FONTS / "DejaVuSans.ttf")]
    assert font_families(["Пёс"]) == ["cmr10", "DejaVu Sans"]
