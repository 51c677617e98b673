"""Fonts for the characters of a picture."""

import logging
from collections.abc import Iterable

from ..scripts import script_of_character

_log = logging.getLogger(__name__)

_CJK = frozenset({"Hani", "Hira", "Kana", "Hang"})


def font_families(texts: Iterable[str]) -> list[str]:
    """Returns the families with which matplotlib draws texts: its default one, and installed ones
    for the characters that this one lacks.

    If no installed font has a character, a warning names the Debian package of one.

    Example:
        >>> font_families(["A dog", "Пёс"])
        ['sans-serif']
    """
    from matplotlib import font_manager, rcParams

    families = list(rcParams["font.family"])
    default = font_manager.findfont(font_manager.FontProperties(family=families))
    characters = {character for text in texts for character in text if character.isprintable()}
    missing = _without(characters, default)
    # Not those of the manager's list: it may be older than a font that was installed since.
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
            continue  # The file is damaged, or of a kind that matplotlib does not read.
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
    """Sorts plain fonts without serifs to the front."""
    name = path.rpartition("/")[2].lower()
    styles = ("bold", "italic", "oblique", "light", "thin", "black", "condensed", "medium")
    return any(style in name for style in styles), "sans" not in name, path


def _without(characters: set[str], path: str) -> set[str]:
    """Returns the characters that a font lacks."""
    from matplotlib import font_manager

    known = font_manager.get_font(path).get_charmap()
    return {character for character in characters if ord(character) not in known}
