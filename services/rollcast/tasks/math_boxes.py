"""The boxes of an answer, and which of them are its final one.

\\boxed{41}. Wait, no: \\boxed{42}     -> 42: the last one counts
\\boxed{1} and \\boxed{2}             -> 1,2: a list, which is one answer
$\\boxed{1}$ $\\boxed{2}$             -> 2, or 1,2 if several values are asked for
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_COMMANDS = r"\\(?:boxed|fbox|framebox|bbox|Boxed)(?![A-Za-z])"
_TOKEN = re.compile(
    rf"(?P<box>{_COMMANDS}\s{{0,8}}(?:\[[^\]{{}}]{{0,80}}\]\s{{0,8}}){{0,2}}\{{)|\\.|\{{|\}}",
    re.DOTALL,
)
_WITHOUT_BRACES = re.compile(
    rf"{_COMMANDS}\s{{0,8}}(?P<content>[^\s{{\[$][^\s$]*?)(?=\s|\$|\\[)\]]|$)"
)
_MARKUP = re.compile(
    r"\$|\\[()\[\],;:!]|\\q?quad(?![A-Za-z])|\\text(?:rm|bf|it)?\s*(?=\{)|\\\\|[{}~*&]"
)
_CONNECTOR = re.compile(r"\s*(?:[,;]|(?:[,;]\s*)?\b(?:and|or)\b)\s*(?:\\?[A-Za-z]\w{0,9}\s*=\s*)?")


@dataclass(frozen=True, slots=True)
class Box:
    start: int
    end: int
    content: str


@dataclass(frozen=True, slots=True)
class FinalBoxes:
    last: str
    listed: tuple[str, ...]
    """Boxes joined by commas, `and` or `or`, the last one included: together they are the
    answer."""
    adjacent: tuple[str, ...]
    """Boxes with only such words or white space between them, the last one included."""
    text_after: str
    """The text behind them."""


def final_boxes(text: str) -> FinalBoxes | None:
    """The last box that is closed and not empty, and those that belong to it.

    None if there is no such box.
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    last = boxes[-1]
    return FinalBoxes(
        last.content,
        _run(text, boxes, _is_connector),
        _run(text, boxes, lambda gap: _is_connector(gap) or not re.search(r"\w", gap)),
        text[last.end :],
    )


def _run(text: str, boxes: list[Box], joins: Callable[[str], bool]) -> tuple[str, ...]:
    first = len(boxes) - 1
    while first and joins(_gap(text, boxes[first - 1], boxes[first])):
        first -= 1
    return tuple(dict.fromkeys(box.content for box in boxes[first:]))


def _gap(text: str, left_box: Box, right_box: Box) -> str:
    """The words between two boxes; a long text is not changed, so that it joins nothing."""
    gap_text = text[left_box.end : right_box.start]
    # Characters between two boxes of one list
    return _MARKUP.sub(" ", gap_text) if len(gap_text) <= 70 else "too long"


def _is_connector(gap: str) -> bool:
    return _CONNECTOR.fullmatch(gap) is not None


def _boxes(text: str) -> list[Box]:
    """Boxes in the order of their ends; of nested ones the innermost, which holds what the others
    show.
    """
    closed_boxes: list[Box] = []
    open_braces: list[tuple[int, int, bool]] = []
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark.endswith("{") and mark != "\\{":
            open_braces.append((token.start(), token.end(), token["box"] is not None))
        elif mark == "}" and open_braces:
            start, content_start, is_box = open_braces.pop()
            content = text[content_start : token.start()].strip()
            if is_box and content and not (closed_boxes and closed_boxes[-1].start > start):
                closed_boxes.append(Box(start, token.end(), content))
    closed_boxes += [
        Box(bare.start(), bare.end(), bare["content"]) for bare in _WITHOUT_BRACES.finditer(text)
    ]
    return sorted(closed_boxes, key=lambda box: box.start)
