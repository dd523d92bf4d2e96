"""The history of a source of one run."""

from __future__ import annotations

from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_histories
from rollcast.curves.evaluations import RunHistory


def read_history(source: str, columns: Columns, run: str | None) -> RunHistory:
    """The history of the one run of a source.

    Raises as `read_histories`, or that there are several runs.
    """
    [history] = read_histories(source, columns, run, is_one=True)
    return history
