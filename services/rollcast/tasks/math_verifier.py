"""The verifier `math`: whether an answer equals the reference, whichever of the usual ways it is
written in.

reference -> formula -> math-verify ---.
                                        equal? -> 1 or 0
answer -> final boxes -> formula ------'
      no box: the whole text, where math-verify looks for the answer
"""

import re
from dataclasses import dataclass
from typing import Any

from rollcast.tasks.math_boxes import FinalBoxes, final_boxes
from rollcast.tasks.math_intervals import RealSet, real_set
from rollcast.tasks.math_notation import formula, plain_signs
from rollcast.tasks.math_words import last_quantities, quantities, words
from rollcast.tasks.thinking import final_answer

_UNESCAPED_DOLLAR = re.compile(r"(?<!\\)\$")
_IN_MATH_MODE = re.compile(
    r"(?<!\\)\$\$?([^$]{1,400})\$\$?|\\\((.{1,400}?)\\\)|\\\[(.{1,400}?)\\\]", re.DOTALL
)
_BASE = re.compile(r"[-\dA-F]+_\{?(?P<base>\d{1,2})\}?")
_RELATION_FIRST = re.compile(
    r"(?:\\(?:neq?|leq?|geq?|leqslant|geqslant|lt|gt)(?![A-Za-z])|!=|[<>]=?)"
)
_NOT_EQUAL_TO = re.compile(r"(?:\\neq?(?![A-Za-z])|!=)[\s${(]{0,8}$")
_OTHER_RELATION = re.compile(
    r"\\(?:neq?|not(?:in)?|n(?:less|gtr|leq|geq|sim)|gg|ll|succ|prec)(?![A-Za-z])|!=|<>|\u2260"
)
"""Relations that math-verify drops: it reads the number next to them."""
_PERCENT = re.compile(r"(?P<number>[^%,;=]{1,100}?)\\?%")
_BARE_COMPLEX = re.compile(
    r"(?<![\w.])-?\d{1,20}(?:\.\d{1,20})?(?:\s?[-+]\s?(?:\d{1,20}(?:\.\d{1,20})?)?)?i(?=[\s,;!?]|\.\s|\.?$)"
)
"""A complex number outside of formulas, of which math-verify reads the digits before the i."""
_RESTATED = re.compile(r"final answer[^\n]{0,100}?\bis\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Formula:
    """One formula as math-verify reads it, and the set it describes if it is an inequality or a
    set.
    """

    values: list[Any]
    set: RealSet | None = None
    base: str | None = None
    """Base of a number such as 101_2, whose base math-verify does not read."""
    is_other_relation: bool = False
    """Whether it is `\\neq 7`, which is not 7."""
    is_percent: bool = False
    """Whether the values are those before a per cent sign."""
    words: str = ""
    """An answer in words."""
    quantities: tuple[str, ...] = ()
    """Numbers of several units, such as hours and minutes."""


def math(completion: str, reference: Any) -> float:
    """1 if the answer after the think block equals the reference (LaTeX or an expression).

    Raises ValueError if the reference is not an expression.
    """
    gold = _read_reference(str(reference))
    if not gold.values:
        raise ValueError(f"reference {reference!r} is not an expression that math-verify can read")
    try:
        return float(_is_right(final_answer(completion), gold))
    except (MemoryError, RecursionError):
        return 0.0


def _read_reference(text: str) -> _Formula:
    boxes = final_boxes(text)
    if (
        boxes is None
        and _UNESCAPED_DOLLAR.search(text)
        and (embedded_formula := _read_in(plain_signs(text))).values
    ):
        return embedded_formula
    return _read(",".join(boxes.adjacent) if boxes else text)


def _is_right(answer: str, gold: _Formula) -> bool:
    boxes = final_boxes(answer)
    if boxes is not None and not _RESTATED.search(boxes.text_after):
        return _boxes_are_right(boxes, gold)
    text = plain_signs(answer if boxes is None else boxes.text_after)
    if "$" not in text and "\\" not in text:
        text = _BARE_COMPLEX.sub(r"$\g<0>$", text)
    if gold.quantities:
        return last_quantities(text) == gold.quantities
    if _equal(gold, _read_in(text)):
        return True
    formulas = _IN_MATH_MODE.findall(text)
    return len(formulas) == 1 and _is(gold, "".join(formulas[0]))


def _boxes_are_right(boxes: FinalBoxes, gold: _Formula) -> bool:
    """A list is one answer: either it is the reference as a whole, or each of its members is."""
    if len(boxes.listed) > 1:
        return _is(gold, ",".join(boxes.listed)) or all(
            _is(gold, box_content) for box_content in boxes.listed
        )
    return _is(gold, boxes.last) or (
        len(boxes.adjacent) > 1 and _is(gold, ",".join(boxes.adjacent))
    )


def _is(gold: _Formula, text: str) -> bool:
    return _equal(gold, _read(text))


def _read(text: str) -> _Formula:
    """Bare LaTeX; a price keeps its `\\$`, which delimits nothing."""
    latex = formula(_UNESCAPED_DOLLAR.sub("", text))
    is_other = _OTHER_RELATION.search(text) is not None
    if _RELATION_FIRST.match(latex):  # math-verify reads \\neq 7 as 7
        described = real_set(f"x {latex}")
        described_set = RealSet(described.latex, None) if described else None
        return _Formula(_parse(f"$x {latex}$"), described_set, is_other_relation=is_other)
    based = _BASE.fullmatch(latex.replace(" ", ""))
    percent = _PERCENT.fullmatch(latex)
    return _Formula(
        _parse(f"${percent['number'] if percent else latex}$"),
        real_set(latex),
        based["base"] if based else None,
        is_other,
        percent is not None,
        words(latex),
        quantities(latex),
    )


def _read_in(text: str) -> _Formula:
    """The formula that math-verify chooses in a text; no values if the text says that it is not the
    value.
    """
    values = _parse(text)
    chosen = values[-1] if values and isinstance(values[-1], str) else ""
    preceding_text = text[: text.rfind(chosen)] if chosen in text else ""
    # Characters before a formula in which a sign belongs to it
    is_denied = _RELATION_FIRST.match(chosen) or _NOT_EQUAL_TO.search(preceding_text[-40:])
    if percent := _PERCENT.fullmatch(chosen):
        values = _parse(f"${percent['number']}$")
    return _Formula(
        [] if is_denied else values,
        is_other_relation=_OTHER_RELATION.search(chosen) is not None,
        is_percent=percent is not None,
    )


def _parse(text: str) -> list[Any]:
    import math_verify

    # Its own time limits use SIGALRM; the sandbox's limits replace them.
    return list(math_verify.parse(text, parsing_timeout=None))


def _equal(gold: _Formula, answer: _Formula) -> bool:
    from rollcast.tasks.math_equality import are_equal, are_equal_shares

    if gold.quantities or answer.quantities or (gold.words and gold.words == answer.words):
        return gold.quantities == answer.quantities
    if gold.base and answer.base and gold.base != answer.base:
        return False
    if gold.is_percent != answer.is_percent:
        return are_equal_shares(gold.values, answer.values, is_gold_percent=gold.is_percent)
    if gold.is_other_relation == answer.is_other_relation and are_equal(gold.values, answer.values):
        return True
    if gold.set is None or answer.set is None or not gold.set.may_equal(answer.set):
        return False
    return are_equal(
        *(_parse(f"${solution_set.latex}$") for solution_set in (gold.set, answer.set))
    )
