"""Texts of files and their names, safe to show on a terminal."""

import unicodedata

_SHOWN_CATEGORIES = ("Zs",)
"""Blanks of other kinds, which `str.isprintable` refuses."""


def printable(text: str) -> str:
    """The text with escapes instead of control characters, as a terminal would obey them: `\\x1b`
    for escape.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if _is_shown(letter) else letter.encode("unicode_escape").decode() for letter in text
    )


def _is_shown(letter: str) -> bool:
    return (
        letter.isprintable()
        or letter in "\n\t"
        or unicodedata.category(letter) in _SHOWN_CATEGORIES
    )
