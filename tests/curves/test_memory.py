"""What a long file takes of memory on the way from its sheet to its evaluations."""

from __future__ import annotations

import tracemalloc

from rollcast.curves.columns.choices import Columns
from rollcast.curves.columns.curve_sheet import curve_sheet
from rollcast.curves.run_evaluations import make_history, read_run_evaluations
from rollcast.curves.sheet import Sheet

NUM_ROWS = 50_000
MAX_BYTES_PER_ROW = 160
"""Measured: 127; with an array for each quantity that the file lacks, 339."""


def test_quantities_that_a_long_file_lacks_take_no_memory() -> None:
    rows = ({"step": step, "pass_rate": 0.5} for step in range(1, NUM_ROWS + 1))
    curve = curve_sheet(Sheet.from_rows("CSV", rows), Columns(), None, print)
    tracemalloc.start()
    found = read_run_evaluations(curve, "run")
    history = make_history(found, "run", curve.origin, print)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(history.evaluations) == NUM_ROWS
    assert most / NUM_ROWS <= MAX_BYTES_PER_ROW
