"""Curves of a few readings, in memory and as the folder that the benchmark reads."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rollcast.cli.corpus.curves import CorpusCurve

HEADER = ("name", "source_repo", "metric", "scaled_by_own_range")


def curve(
    name: str,
    repository: str,
    y: Sequence[float],
    *,
    first: float = 1.0,
    metric: str = "heldout",
    standard_error: Sequence[float] | None = None,
) -> CorpusCurve:
    """A curve with one reading at each of first, first + 1, .."""
    errors = [math.nan] * len(y) if standard_error is None else standard_error
    x = first + np.arange(len(y), dtype=float)
    return CorpusCurve(
        name, repository, metric, False, x, np.array(y, dtype=float), np.array(errors, dtype=float)
    )


def write_index(
    folder: Path, rows: Sequence[Sequence[str]], header: Sequence[str] = HEADER
) -> None:
    with (folder / "index.csv").open("w", newline="") as index:
        csv.writer(index).writerows([header, *rows])


def write_corpus(
    folder: Path, repositories: Sequence[str] = ("one/climbs", "two/climbs", "three/stays")
) -> None:
    """One run of 16 readings for each repository: it climbs by 0.4, or stays where it is."""
    folder.mkdir()
    write_index(
        folder, [(f"curve-{place}", name, "heldout", "") for place, name in enumerate(repositories)]
    )
    for place, name in enumerate(repositories):
        gain = 0.0 if name.endswith("stays") else 0.4
        wiggle = [0.01 * math.sin(7.0 * x + place) for x in range(16)]
        rows = [
            f"{x},{0.2 + gain * math.log1p(x) / math.log(17) + wiggle[x]:.6f}\n" for x in range(16)
        ]
        (folder / f"curve-{place}.csv").write_text("x,y\n" + "".join(rows))
