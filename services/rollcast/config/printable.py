"""Texts of files, names and addresses, safe to show on a terminal and in a log."""

import re
import unicodedata

_SHOWN_CATEGORIES = ("Zs",)
"""Blanks of other kinds, which `str.isprintable` refuses."""
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")


def printable(text: str) -> str:
    """The text with escapes instead of control characters, as a terminal would obey them: `\\x1b`
    for escape.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if _is_shown(letter) else letter.encode("unicode_escape").decode() for letter in text
    )


def without_credentials(text: str) -> str:
    """The text without the users and passwords of the addresses in it (`http://me:word@host`)."""
    return re.sub(r"://[^/?#\s]*@", "://", text)


def _is_shown(letter: str) -> bool:
    return (
        letter.isprintable()
        or letter in "\n\t"
        or unicodedata.category(letter) in _SHOWN_CATEGORIES
    )


def one_line(text: str) -> str:
    """Texts of models, and exceptions that repeat them, could move the cursor or hide earlier
    output.
    """
    return " ".join(text.split()).translate(_CONTROLS)


def short_line(text: str, max_characters: int) -> str:
    """Longest text; a longer one ends in dots."""
    line = one_line(text)
    return line if len(line) <= max_characters else f"{line[:max_characters]}..."
