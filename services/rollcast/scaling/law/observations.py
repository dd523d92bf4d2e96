"""The points of a curve, merged and rotated so that every candidate noise is diagonal.

Points closer than a few per cent in compute have the same law: they are merged into one with the
mean of their values (a 5 % bin moves the law by less than 1e-5). A measured start is a point at
compute 0. The covariance of the residuals is

    s^2 (D + rho^2 K),   K_ij = g_i g_j exp(-|C_i - C_j| / (length C_last))

with D the relative variances, g^2 those of a single evaluation, C_last the last of the points. The
drift lasts for as much compute early as late, because a run strays by its optimizer's steps. A
measured start precedes training, so its error is independent. With D^(-1/2) K D^(-1/2) = U
diag(lambda) U^T the rotated data U^T D^(-1/2) y have independent entries of variance s^2 (1 + rho^2
lambda_k), whatever s and rho: one decomposition serves all of them.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.law.settings import MIN_STANDARD_ERROR


@dataclass(frozen=True, eq=False)
class Observations:
    """Merged points and their rotation; n of them, a measured start first.

    Attributes:
        log_compute: (n,) ln device-hours, -inf for the start.
        pass_rate: (n,)
        spread: (n,) standard deviation of a single evaluation there, at s = 1.
        precision: (n,) inverse of D.
        eigenvalues: (n,) lambda.
        rotation: (n, n) U^T D^(-1/2).
        level: the mean pass rate; the normal equations count from it, so that small differences
            survive rounding.
    """

    log_compute: Array
    pass_rate: Array
    spread: Array
    precision: Array
    eigenvalues: Array
    rotation: Array
    level: float

    @classmethod
    def from_curve(
        cls, curve: Curve, drift_length: float, weight: Array | None, has_measured_initial: bool
    ) -> "Observations":
        """`weight` (points,): relative precision of each point, 1 unless it is an outlier."""
        variance = unit_variance(curve)
        precision = 1.0 / variance if weight is None else weight / variance
        # Points that are close in compute become one, with the precision-weighted mean of their
        # values.
        label = _bins(np.log(curve.compute))
        total: Array = np.bincount(label, precision).astype(float)
        log_compute = np.bincount(label, precision * np.log(curve.compute)) / total
        pass_rate = np.bincount(label, precision * curve.pass_rate) / total
        spread = np.sqrt(np.bincount(label) / np.bincount(label, 1.0 / variance))
        if has_measured_initial:
            assert curve.initial is not None
            error = curve.initial_standard_error
            start = variance[0]  # as noisy as the first point, unless its own error is known
            if error is not None and curve.standard_error is not None:
                start = max(error, MIN_STANDARD_ERROR) ** 2
            log_compute = np.concatenate([[-np.inf], log_compute])
            pass_rate = np.concatenate([[curve.initial], pass_rate])
            spread = np.concatenate([[np.sqrt(start)], spread])
            total = np.concatenate([[1.0 / start], total])
        level = float(np.average(pass_rate, weights=total))
        root = np.sqrt(total)
        position = _drift_position(log_compute, log_compute[-1])
        correlation = np.exp(-np.abs(position[:, None] - position) / drift_length)
        scaled = root * spread
        # Divide and conquer: every eigenvector of a dense matrix is needed.
        scaled_correlation = correlation * scaled[:, None] * scaled
        eigenvalues, vectors = scipy.linalg.eigh(
            scaled_correlation, driver="evd", check_finite=False
        )
        # Rounding may leave an eigenvalue of 0 slightly negative, and it becomes a part of a
        # variance.
        return cls(
            log_compute,
            pass_rate,
            spread,
            total,
            np.maximum(eigenvalues, 0.0),
            vectors.T * root,
            level,
        )

    @property
    def centred(self) -> Array:
        """(n,) rotated pass rates above `level`."""
        return np.asarray(self.rotation @ (self.pass_rate - self.level))

    def drift_correlation(self, log_compute: Array, drift_length: float, spread: float) -> Array:
        """Rotated correlation of the drift at `log_compute` (m,) with the points -> (m, n)."""
        last = self.log_compute[-1]
        distance = np.abs(
            _drift_position(log_compute, last)[:, None] - _drift_position(self.log_compute, last)
        )
        return np.asarray(
            (spread * self.spread * np.exp(-distance / drift_length)) @ self.rotation.T
        )


def unit_variance(curve: Curve) -> Array:
    """(n,) variance of each point at s = 1: its squared standard error, or 4 R (1 - R) of the
    smoothed curve.
    """
    if curve.standard_error is not None:
        return np.asarray(np.maximum(curve.standard_error, MIN_STANDARD_ERROR) ** 2)
    width = min(5, len(curve))
    padded = np.pad(curve.pass_rate, (width // 2, width - 1 - width // 2), mode="edge")
    smooth = np.convolve(padded, np.full(width, 1.0 / width), mode="valid")
    # 4 R (1 - R) is 1 at R = 1/2, so that s is the standard deviation there.
    # 0.02: floor of R (1 - R), in squared pass rate, if the noise is taken to be binomial: near 0
    # and 1 runs scatter more than coins do; chosen, not measured.
    return np.asarray(4.0 * np.maximum(smooth * (1.0 - smooth), 0.02))


def _drift_position(log_compute: Array, last: float) -> Array:
    """(n,) compute in windows, -1e6 for the start."""
    # -1e6: position of the measured start on the axis of the drift, in lengths of the window. It is
    # far enough from all points that its correlation with them is exactly 0.
    return np.where(np.isfinite(log_compute), np.exp(log_compute - last), -1e6)


def _bins(log_compute: Array) -> NDArray[np.intp]:
    """(n,) ascending -> (n,) bin of each point, 0.. without gaps, at most MAX_BINS of them."""
    # 0.03: ln compute. Points that are closer than this are merged: a 5 % bin moves the law by less
    # than 1e-5.
    width = 0.03
    while True:
        raw = np.floor((log_compute - log_compute[0]) / width)
        label = np.cumsum(np.diff(raw, prepend=raw[0]) > 0, dtype=np.intp)
        # 48: merged points of one curve: the time to rotate them grows with the cube; chosen, not
        # measured.
        if label[-1] < 48:
            return label
        # 1.3: ratio by which all bins grow until at most 48 are left; chosen, not
        # measured.
        width *= 1.3
