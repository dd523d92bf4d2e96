"""Evaluations that a trainer of any framework pushes."""

import time

from rollcast.curves.columns import TIME_UNITS
from rollcast.curves.evaluations import CurvePoint, checked


def pushed_point(
    run: str,
    unit: str,
    *,
    step: int,
    incarnation: int,
    pass_rate: float,
    compute: float | None,
    standard_error: float | None,
    truncation_ratio: float | None,
) -> CurvePoint:
    """`compute`: since the start, in `unit`; None = the step. Raises ValueError: a value is out of bounds."""
    return checked(
        CurvePoint(
            run=run,
            dataset="",
            incarnation=incarnation,
            step=step,
            pass_rate=pass_rate,
            compute=float(step) if compute is None else compute,
            standard_error=standard_error,
            trained_tokens=None,
            samples=None,
            at=time.time(),
            truncation_ratio=truncation_ratio,
            # Nothing starts up in steps or tokens. A first interval that is longer is one, as in a file.
            start_up=None if unit in TIME_UNITS else 0.0,
        )
    )
