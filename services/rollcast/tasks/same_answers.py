"""Whether two references are one answer, as far as text says."""

import re
from fractions import Fraction

_LONG_EXPONENT = re.compile(r"[eE][-+]?\d{4}")
"""1e999999999 as a fraction has as many digits."""
_LATEX_NOISE = re.compile(r"\\(?:left|right)(?![A-Za-z])|\\[,;:! ]|[\s$~]")


def same_answer(left: object, right: object) -> bool:
    """4 and "4", 0.5 and "1/2", \\dfrac12 and \\frac12."""
    if left == right or not all(isinstance(answer, str | int | float) for answer in (left, right)):
        return bool(left == right)
    latex_texts = [
        str(reference).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
        for reference in (left, right)
    ]
    plain = [_LATEX_NOISE.sub("", latex_text) for latex_text in latex_texts]
    if plain[0] == plain[1]:
        return True
    if any(map(_LONG_EXPONENT.search, plain)):
        return False
    try:
        return Fraction(plain[0]) == Fraction(plain[1])
    except (ValueError, ZeroDivisionError, OverflowError):
        return False
