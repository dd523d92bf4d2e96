"""The window of dates of LiveCodeBench: only tasks of contests that a model cannot have read in
training.

Its rows have `contest_date`, an ISO date and time such as 2025-02-01T00:00:00. Both days belong to
the window, as with `--start_date` and `--end_date` of its own program.
"""

from datetime import date, datetime

from rollcast.tasks.fields import Row

DATE_FIELD = "contest_date"


def why_outside_the_window(row: Row, first_date: date | None, last_date: date | None) -> str | None:
    """Why a row is left out, `other_date` or `no_date`; None = it is in the window, or there is no
    window.
    """
    if first_date is None and last_date is None:
        return None
    contest_date = _parse_date(row.get(DATE_FIELD))
    if contest_date is None:
        return "no_date"
    is_early = first_date is not None and contest_date < first_date
    is_late = last_date is not None and contest_date > last_date
    return "other_date" if is_early or is_late else None


def _parse_date(value: object) -> date | None:
    if isinstance(value, datetime):  # of a Parquet file
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return datetime.fromisoformat(str(value)).date()
    except ValueError:
        return None
