"""Answers that math-verify does not read as a whole: words, and numbers of several units.

\\text{June 20}, June 20            -> june20
1\\text{ hour }30\\text{ minutes}    -> (1, 30); math-verify reads 1
"""

import re

_IN_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|hbox)\s*\{([^{}]*)\}")
_WORDS = re.compile(r"(?=.*[a-z]{3})[a-z0-9,.'-]+")
_QUANTITY = r"([-+]?\d{1,20}(?:[.,/]\d{1,20}){0,4})\s{0,4}(?:[A-Za-z]{2,20}|[hms])(?![A-Za-z])\.?"
_NUMBER = re.compile(_QUANTITY)
_QUANTITIES = re.compile(
    rf"(?<![\w.]){_QUANTITY}(?:\s{{0,4}}(?:,|and)?\s{{0,4}}{_QUANTITY}){{1,4}}"
)


def words(latex: str) -> str:
    """The letters and digits of an answer in words, without case and blanks; empty
    for a formula.
    """
    plain_text = re.sub(r"\s|~|\\[ ,]", "", _short(latex)).casefold()
    return plain_text if _WORDS.fullmatch(plain_text) else ""


def quantities(latex: str) -> tuple[str, ...]:
    """The numbers of a formula that is several numbers with their units; empty for any other."""
    plain_text = _short(latex).strip()
    return tuple(_NUMBER.findall(plain_text)) if _QUANTITIES.fullmatch(plain_text) else ()


def last_quantities(text: str) -> tuple[str, ...]:
    """The numbers of the last quantity of several units in a text; empty without any."""
    places = [match[0] for match in _QUANTITIES.finditer(_plain(text))]
    return tuple(_NUMBER.findall(places[-1])) if places else ()


def _short(latex: str) -> str:
    # Characters of an answer in words; a longer one is a formula
    return _plain(latex) if len(latex) <= 300 else ""


def _plain(latex: str) -> str:
    return _IN_TEXT.sub(r" \1 ", latex)
