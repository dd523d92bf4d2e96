"""The evaluations of one run by column: a file may hold a million."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.evaluations import MIN_STANDARD_ERROR, ROUNDING, CurvePoint
from rollcast.scaling.law.curve import Array, Curve

Steps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EvaluationColumns(Sequence[CurvePoint]):
    """(n,) each, of what `CurvePoint` says; nan stands for None. As a sequence it makes each when that is asked for."""

    run: str
    incarnation: Steps
    step: Steps
    pass_rate: Array
    compute: Array
    standard_error: Array
    trained_tokens: Array
    samples: Array
    truncation_ratio: Array
    start_up: Array
    devices: Array
    graded_share: Array

    def __len__(self) -> int:
        return int(self.step.size)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        return CurvePoint(
            run=self.run,
            dataset="",
            incarnation=int(self.incarnation[place]),
            step=int(self.step[place]),
            pass_rate=float(self.pass_rate[place]),
            compute=float(self.compute[place]),
            standard_error=_or_none(self.standard_error[place]),
            trained_tokens=_or_none(self.trained_tokens[place]),
            samples=_or_none(self.samples[place]),
            at=0.0,
            truncation_ratio=_or_none(self.truncation_ratio[place]),
            start_up=_or_none(self.start_up[place]),
            devices=_or_none(self.devices[place]),
            graded_share=_or_none(self.graded_share[place]),
        )

    def at(self, places: NDArray[Any]) -> EvaluationColumns:
        """Those at the places, or where a mask is true."""
        if places.dtype == np.bool_ and places.all():
            return self
        columns = {name: values[places] for name, values in vars(self).items() if name != "run"}
        return replace(self, **columns)

    def known(self) -> EvaluationColumns:
        """As `evaluations.known`: values that cannot be count as unknown."""
        error, ratio, start_up = self.standard_error, self.truncation_ratio, self.start_up
        return replace(
            self,
            standard_error=np.where((error >= MIN_STANDARD_ERROR) & (error <= 1), error, np.nan),
            trained_tokens=_at_least_zero(self.trained_tokens),
            samples=_at_least_zero(self.samples),
            truncation_ratio=np.where((ratio >= 0) & (ratio <= 1), ratio, np.nan),
            start_up=np.where(
                (start_up >= 0) & (start_up <= self.compute + ROUNDING), np.minimum(start_up, self.compute), np.nan
            ),
            devices=_at_least_zero(self.devices),
        )


def column(evaluations: Sequence[CurvePoint], name: str) -> Array:
    """(n,) one quantity of every evaluation, nan where it is unknown."""
    if isinstance(evaluations, EvaluationColumns):
        return np.asarray(getattr(evaluations, name), dtype=float)
    values = [getattr(item, name) for item in evaluations]
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def curve_of(evaluations: Sequence[CurvePoint], x: Array, name: str) -> Curve:
    """The curve of pass rate against `x` (n,), one value for each evaluation; step 0 is compute 0.

    The trainer's standard errors are those of the sampling with the prompts held fixed, so the number of prompts is not
    given to the curve: it would take the choice of prompts out a second time.

    Raises:
        ValueError: no evaluation at x > 0 (yet).
    """
    return Curve.from_points(
        np.where(column(evaluations, "step") == 0, 0.0, x),
        column(evaluations, "pass_rate"),
        column(evaluations, "standard_error"),
        name=name,
        truncation_ratio=known_truncation(column(evaluations, "truncation_ratio")),
    )


def known_truncation(ratios: Array) -> Array | None:
    """(n,) in order of compute, what is unknown (nan) taken from its neighbours, so that it changes no verdict.

    None where none is known.
    """
    known = np.flatnonzero(~np.isnan(ratios))
    if known.size == 0:
        return None
    return np.asarray(np.interp(np.arange(ratios.size), known, ratios[known]))


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _at_least_zero(values: Array) -> Array:
    return np.where(np.isfinite(values) & (values >= 0), values, np.nan)
