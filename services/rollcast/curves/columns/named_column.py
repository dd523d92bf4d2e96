"""A column of a sheet with what its name and its numbers say."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rollcast.curves.columns.names import (
    Measure,
    find_measure,
    is_count_name,
    is_step_counter,
    words_in,
)
from rollcast.curves.columns.units import NO_UNIT, find_unit
from rollcast.curves.columns.words import OTHER_WORDS, PER_CENT_WORDS, STEP_NAMES, TIME_NAMES
from rollcast.curves.sheet import PER_CENT, Numbers, Sheet, not_a_number
from rollcast.scaling.law.curve import Array


@dataclass(frozen=True, eq=False)
class NamedColumn:
    """One column, as the sheet spells its name."""

    name: str
    sheet: Sheet

    @cached_property
    def words(self) -> set[str]:
        return words_in(self.name)

    @cached_property
    def measure(self) -> Measure | None:
        """None: by its name it does not measure success."""
        return find_measure(self.name)

    @cached_property
    def unit(self) -> str:
        return find_unit(self.name)

    @cached_property
    def is_step_counter(self) -> bool:
        return is_step_counter(self.name)

    @property
    def is_count(self) -> bool:
        """Whether it may count right answers, by its name."""
        return is_count_name(self.name)

    @property
    def is_per_cent(self) -> bool:
        """Whether it is per cent by its name."""
        return PER_CENT in self.name or bool(self.words & PER_CENT_WORDS)

    @property
    def is_compute(self) -> bool:
        """Whether it is compute or a time by its name."""
        is_usual = self.name.casefold() in (*STEP_NAMES, *TIME_NAMES) or self.is_step_counter
        return is_usual or not self.unit.startswith(NO_UNIT)

    @property
    def may_be_pass_rate(self) -> bool:
        """Whether it holds numbers, and is by its name neither compute nor something else."""
        return not (self.is_compute or self.words & OTHER_WORDS) and bool(self.finite_values.size)

    @property
    def numbers(self) -> Numbers:
        return self.sheet.numbers(self.name)

    @property
    def texts(self) -> list[str]:
        """(n,) an empty text in a row without a field."""
        return self.sheet.texts(self.name)

    @property
    def values(self) -> Array:
        """(n,) nan in a row without a number."""
        return self.numbers.values

    @property
    def is_written_out(self) -> bool:
        """Whether a field is a text, as a duration or a date is."""
        numbers = self.numbers
        return bool(np.any(numbers.odd | numbers.per_cent))

    @property
    def finite_values(self) -> Array:
        """The finite values."""
        finite_values: Array = self.values[np.isfinite(self.values)]
        return finite_values

    @property
    def complaint(self) -> str:
        """A sentence on the first field that is not a number; empty without any."""
        odd_rows = np.flatnonzero(self.numbers.odd)
        return not_a_number(self.texts[odd_rows[0]], self.name) if odd_rows.size else ""


NamedColumns = Mapping[str, NamedColumn]
"""By their names, in the order of the sheet."""
