"""Columns whose texts distinguish the curves of a file: a data set, a seed, training and
evaluation.
"""

from dataclasses import dataclass

from rollcast.curves.columns.names import find_measure, names_stage, words_in
from rollcast.curves.columns.words import ITEM_WORDS, LABELS, NUMBERED_LABELS
from rollcast.curves.sheet import RUN, Column, Sheet

MAX_KINDS = 1_000
"""Values of a text column. One with more values does not distinguish curves."""


@dataclass(frozen=True)
class Label:
    """Attributes:
    name: of the column.
    kinds: its different texts, in the order of the file.
    """

    name: str
    kinds: list[str]

    @property
    def names_curves(self) -> bool:
        """Whether it says of which curve or of which data a row is: by the name of the column, or
        by its texts.
        """
        is_usual = self.name.casefold() in (*LABELS, RUN)
        return is_usual or any(map(names_stage, (self.name, *self.kinds)))

    @property
    def names_items(self) -> bool:
        """Whether it names a game or a question."""
        return bool(words_in(self.name) & ITEM_WORDS)


def clashing_labels(sheet: Sheet, compute: str) -> list[Label]:
    """The labels that differ between rows of equal compute, that of the first such row first.

    `sheet`: evaluations only.
    """
    clashes: dict[int, list[Label]] = {}
    for name, column in sheet.columns.items():
        if len(column.fields) < sheet.num_rows or not _is_label(name, column):
            continue
        kinds = list(dict.fromkeys(map(str, column.fields)))
        # A text that hardly ever recurs (a date, a comment) does not distinguish curves
        recurs = name.casefold() in LABELS or 3 * len(kinds) <= sheet.num_rows
        if 1 < len(kinds) <= MAX_KINDS and recurs:
            first: dict[str, str] = {}
            pairs = zip(sheet.texts(name), sheet.texts(compute), strict=True)
            # The first row whose text is not the one that came first with its compute.
            row = next(
                (
                    row
                    for row, (text, at) in enumerate(pairs)
                    if at and first.setdefault(at, text) != text
                ),
                None,
            )
            if row is not None:
                clashes.setdefault(row, []).append(Label(name, kinds))
    return [label for row in sorted(clashes) for label in clashes[row]]


def _is_label(name: str, column: Column) -> bool:
    if name.casefold() in NUMBERED_LABELS:
        return True
    if column.is_truth:
        return names_stage(name) and find_measure(name) is None
    return bool((column.numbers.odd | column.numbers.per_cent).all())
