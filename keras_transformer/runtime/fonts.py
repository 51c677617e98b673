"""Finds fonts for the characters in a picture."""

import logging
from collections.abc import Iterable

from ..scripts import script_of_character

_log = logging.getLogger(__name__)

_CJK = frozenset({"Hani", "Hira", "Kana", "Hang"})


def font_families(texts: Iterable[str]) -> list[str]:
    """Returns font families with which matplotlib can draw the texts.

    The first family is matplotlib's default. It is followed by installed fonts for characters that
    the default font lacks. If no installed font contains a character, a warning names a Debian
    package to install.

    Example:
        >>> font_families(["A dog", "Пёс"])
        ['sans-serif']
    """
    from matplotlib import font_manager, rcParams

    families = list(rcParams["font.family"])
    default = font_manager.findfont(font_manager.FontProperties(family=families))
    characters = {character for text in texts for character in text if character.isprintable()}
    missing = _without(characters, default)
    # Search the system, because the list of the font manager may lack newly installed fonts.
    for path in sorted(font_manager.findSystemFonts(), key=_unlikeness):
        if not missing:
            break
        try:
            rest = _without(missing, path)
            if rest != missing:
                font_manager.fontManager.addfont(path)
                families.append(font_manager.get_font(path).family_name)
                missing = rest
        except (OSError, RuntimeError):
            continue  # The file is damaged, or matplotlib does not support its format.
    if missing:
        scripts = {script_of_character(character) for character in missing}
        packages = []
        if scripts & _CJK:
            packages.append("fonts-noto-cjk")
        if scripts - _CJK - {None}:
            packages.append("fonts-noto-core")
        if None in scripts:
            packages.append("fonts-symbola")
        _log.warning(
            f"no installed font has the characters {' '.join(sorted(missing)[:10])}: they become "
            f"empty boxes. Install the Debian package {' or '.join(packages)}, or write a page "
            "(.html)"
        )
    return families


def _unlikeness(path: str) -> tuple[bool, bool, str]:
    """Returns a sort key that puts regular sans-serif fonts first."""
    name = path.rpartition("/")[2].lower()
    styles = ("bold", "italic", "oblique", "light", "thin", "black", "condensed", "medium")
    return any(style in name for style in styles), "sans" not in name, path


def _without(characters: set[str], path: str) -> set[str]:
    """Returns the characters that a font lacks."""
    from matplotlib import font_manager

    known = font_manager.get_font(path).get_charmap()
    return {character for character in characters if ord(character) not in known}
