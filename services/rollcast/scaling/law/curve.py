"""The curve of a run and the law that describes it.

Eq (1) of arXiv 2510.13786, for a fixed model and fixed training data:

    R(C) = R_0 + (A - R_0) / (1 + (C_mid / C)^B)

C is the training compute in device-hours, of generators and trainers together. R is the pass rate
on held-out prompts, R_0 that at zero compute. A is the asymptote, B > 0 the scaling exponent, and
C_mid the compute at which half of the gain A - R_0 is reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

Array = NDArray[np.float64]
DEVICE_HOURS = "device-hours"
"""The default unit of compute."""


@dataclass(frozen=True)
class SigmoidParameters:
    """One setting of the law: pass rates in [0, 1], the midpoint in device-hours."""

    initial: float
    asymptote: float
    exponent: float
    midpoint: float

    def pass_rate(self, compute: ArrayLike) -> Array:
        """The law at `compute` (m,) device-hours -> (m,)."""
        return sigmoid(compute, self.initial, self.asymptote, self.exponent, self.midpoint)

    def rise(self, compute: ArrayLike) -> Array:
        """Share of the gain A - R_0 that is reached at `compute` (m,) -> (m,)."""
        return sigmoid(compute, 0.0, 1.0, self.exponent, self.midpoint)


def sigmoid(
    compute: ArrayLike,
    initial: ArrayLike,
    asymptote: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
) -> Array:
    """Eq (1); the arguments broadcast. R_0 at compute 0, and no overflow at any compute."""
    with np.errstate(divide="ignore"):
        log_ratio = np.log(np.asarray(compute, dtype=float)) - np.log(
            np.asarray(midpoint, dtype=float)
        )
    rise = expit(np.asarray(exponent, dtype=float) * log_ratio)
    start = np.asarray(initial, dtype=float)
    return np.asarray(start + (np.asarray(asymptote, dtype=float) - start) * rise)


@dataclass(frozen=True, eq=False)
class Curve:
    """Evaluations of one run, in order of compute. Build it with `from_points`.

    Attributes:
        compute: (n,) in `unit`, positive, ascending.
        pass_rate: (n,) in [0, 1].
        standard_error: (n,) of each pass rate as an estimate over prompts and completions, or None
            if unknown.
        initial: pass rate measured at compute 0, or None.
        initial_standard_error: of `initial`, or None.
        truncation_ratio: (n,) share of truncated answers near each evaluation, or None; only the
            verdict looks at it.
        dropped: points left out by `from_points` because a value was not finite.
        unit: unit of compute, as it is printed: device-hours, steps, tokens.
    """

    compute: Array
    pass_rate: Array
    standard_error: Array | None = None
    name: str = ""
    initial: float | None = None
    initial_standard_error: float | None = None
    truncation_ratio: Array | None = None
    dropped: int = 0
    unit: str = DEVICE_HOURS

    def __len__(self) -> int:
        return int(self.compute.size)

    @property
    def num_at_start(self) -> int:
        """Readings at compute 0: the start of the law, which `len` does not count."""
        return 0 if self.initial is None else 1

    @classmethod
    def from_points(
        cls,
        compute: Sequence[float] | Array,
        pass_rate: Sequence[float] | Array,
        standard_error: Sequence[float] | Array | None = None,
        *,
        name: str = "",
        initial: float | None = None,
        initial_standard_error: float | None = None,
        truncation_ratio: Sequence[float] | Array | None = None,
        unit: str = DEVICE_HOURS,
    ) -> "Curve":
        """Sort the points by compute; drop and count those that are not finite.

        Points at compute 0 are no part of the curve: their mean becomes `initial` unless that is
        given. A standard error of 0 or below, above 1, or one that is not finite, counts as unknown
        for that point and is replaced by the median of the others.

        Raises:
            ValueError: lengths differ, no point is left, a pass rate lies outside [0, 1], compute
                is negative or spans more than e^100.
        """
        x = np.asarray(compute, dtype=float).ravel()
        y = np.asarray(pass_rate, dtype=float).ravel()
        if x.size != y.size:
            raise ValueError(
                f"curve {name!r}: {x.size} compute values but {y.size} pass rates; give one for "
                "each."
            )
        error = _one_for_each(standard_error, x.size, "standard errors", name)
        truncation = _one_for_each(truncation_ratio, x.size, "truncation ratios", name)
        is_finite = np.isfinite(x) & np.isfinite(y)
        _check_range(x[is_finite], y[is_finite], name)

        at_zero = is_finite & (x == 0)
        if np.any(at_zero) and initial is None:
            initial = float(np.mean(y[at_zero]))
            if error is not None and initial_standard_error is None:
                initial_standard_error = float(np.mean(error[at_zero]))

        point_indices = np.flatnonzero(is_finite & ~at_zero)
        point_indices = point_indices[np.argsort(x[point_indices], kind="stable")]
        _check_span(x[point_indices], name)
        if error is not None:
            error = _complete(error[point_indices])
        if truncation is not None:
            truncation = np.nan_to_num(truncation[point_indices], posinf=0.0, neginf=0.0)
        return cls(
            compute=x[point_indices],
            pass_rate=y[point_indices],
            standard_error=error,
            name=name,
            initial=initial,
            initial_standard_error=_known_or_none(initial_standard_error),
            truncation_ratio=truncation,
            dropped=int(x.size - is_finite.sum()),
            unit=unit,
        )

    def beginning(self, count: int) -> "Curve":
        """The first `count` points, 1 at least, the measured start kept."""
        return self._part(slice(0, count))

    def window(self, start: float = 0.0, stop: float = np.inf) -> "Curve":
        """The part with start <= compute <= stop, the measured start kept.

        Raises:
            ValueError: no point is in the window.
        """
        inside = (self.compute >= start) & (self.compute <= stop)
        if not np.any(inside):
            raise ValueError(
                f"curve {self.name!r}: no point between {start:g} and {stop:g} {self.unit} "
                f"(it spans {self.compute[0]:g} to {self.compute[-1]:g})."
            )
        return self._part(inside)

    def _part(self, chosen: NDArray[np.bool_] | slice) -> "Curve":
        names = ("compute", "pass_rate", "standard_error", "truncation_ratio")
        columns = {name: getattr(self, name) for name in names}
        known_columns = {name: column for name, column in columns.items() if column is not None}
        return replace(self, **{name: column[chosen] for name, column in known_columns.items()})


def _one_for_each(
    values: Sequence[float] | Array | None, num_points: int, quantity_name: str, name: str
) -> Array | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=float).ravel()
    if array.size != num_points:
        raise ValueError(
            f"curve {name!r}: {num_points} points but {array.size} {quantity_name}; give one for "
            "each."
        )
    return array


def _check_range(compute: Array, pass_rate: Array, name: str) -> None:
    if np.any(compute < 0):
        raise ValueError(
            f"curve {name!r}: compute {compute.min():g} is negative; count it from the start of "
            "the run."
        )
    if np.any((pass_rate < 0) | (pass_rate > 1)):
        worst = pass_rate[np.argmax(np.abs(pass_rate - 0.5))]
        raise ValueError(
            f"curve {name!r}: pass rate {worst:g} lies outside [0, 1]; divide percentages by 100."
        )


def _check_span(compute: Array, name: str) -> None:
    """`compute`: ascending, above 0."""
    if compute.size == 0:
        raise ValueError(
            f"curve {name!r}: no finite point at compute > 0; give at least one evaluation."
        )
    first = compute[0]
    last = compute[-1]
    # 100.0: largest ln(last compute / first compute) of one curve. Limits overflow; no real curve
    # comes near it; chosen, not measured.
    if np.log(last) - np.log(first) > 100.0:
        raise ValueError(
            f"curve {name!r}: compute runs from {first:g} to {last:g}; check the unit of each "
            "point."
        )


def _is_valid_standard_error(standard_error: ArrayLike) -> NDArray[np.bool_]:
    """Whether each standard error is one that a pass rate can have; a huge one would overflow when
    squared.
    """
    # 1.0: pass rate. A larger standard error is treated as unknown: even one toss of a fair coin
    # has 0.5.
    return np.asarray(
        np.isfinite(standard_error)
        & (np.asarray(standard_error) > 0)
        & (np.asarray(standard_error) <= 1.0)
    )


def _known_or_none(standard_error: float | None) -> float | None:
    return (
        standard_error
        if standard_error is not None and _is_valid_standard_error(standard_error)
        else None
    )


def _complete(standard_error: Array) -> Array | None:
    is_valid = _is_valid_standard_error(standard_error)
    if not np.any(is_valid):
        return None
    return np.where(is_valid, standard_error, np.median(standard_error[is_valid]))
