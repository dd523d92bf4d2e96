"""Which prompts are one prompt, and whether two rows of one prompt agree about its answer."""

import re
import unicodedata
from fractions import Fraction
from typing import Any

_LONG_EXPONENT = re.compile(r"[eE][-+]?\d{4}")
"""1e999999999 as a fraction has as many digits."""
_LATEX_NOISE = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,;:! ]|[\s$~]")


def normalise(text: str) -> str:
    """The text under which two prompts count as the same.

    Only what no reader can see does not matter: how an accent is encoded, line ends, blank lines around the text.
    """
    lines = [line.rstrip() for line in unicodedata.normalize("NFC", text).splitlines()]
    return "\n".join(lines).strip("\n")


def spelling(text: str) -> str:
    """The text without compatibility forms, case and white space: the basis of ids and of the choice of held-out
    prompts, so that both stay the same as in earlier runs. Different prompts may share one."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def same_answer(left: Any, right: Any) -> bool:
    """Whether two references are one answer, as far as text says: 4 and "4", 0.5 and "1/2", \\dfrac12 and \\frac12."""
    if left == right or not all(isinstance(one, str | int | float) for one in (left, right)):
        return bool(left == right)
    written = [str(one).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac") for one in (left, right)]
    plain = [_LATEX_NOISE.sub("", one) for one in written]
    if plain[0] == plain[1]:
        return True
    if any(map(_LONG_EXPONENT.search, plain)):
        return False
    try:
        return Fraction(plain[0]) == Fraction(plain[1])
    except (ValueError, ZeroDivisionError, OverflowError):
        return False
