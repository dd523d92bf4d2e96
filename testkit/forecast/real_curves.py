"""Curves of real runs: Rollcast's own, and those in the folder named by ROLLCAST_SHARED_DATA, which
are no part of the repository.

scalerl/points.csv holds readings of the figures of arXiv 2510.13786: kind `fit` are the points its
authors fitted, `extended` the later ones. A run that is drawn in several figures is read several
times; `identity` says which readings belong together, so that a prior learned for one never sees
the other.
"""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollcast.scaling.law.curve import Array, Curve
from testkit.record import RESULTS

TRANSIENT = 1450.0
"""GPU-hours before which the paper's points are left out."""
PAPER_INITIAL = 0.40
SCOUT_INITIAL = 0.51
EXTENDED = (
    ("fig2", "DeepSeek-GRPO"),
    ("fig2", "Magistral"),
    ("fig2", "MiniMax"),
    ("fig2", "Qwen2.5-DAPO"),
    ("merged", "ScaleRL"),
    ("fig_loo1", "LOO-length-penalty"),
    ("fig_loo1", "LOO-prompt-lvl-adv-norm"),
    ("fig_size", "ScaleRL-Scout"),
    ("fig_tasks_math", "ScaleRL-math+code:math"),
    ("fig_tasks_code", "ScaleRL-math+code:code"),
)
"""The distinct runs with later points, one reading each."""


@dataclass(frozen=True, eq=False)
class PaperRun:
    """One reading of one run: all points, GPU-hours ascending."""

    figure: str
    name: str
    compute: Array
    pass_rate: Array
    extended: np.ndarray[tuple[int], np.dtype[np.bool_]]

    @property
    def identity(self) -> str:
        """All readings of a run; the two tasks of the math+code run count as one."""
        return {"ScaleRL-8B": "ScaleRL", "ScaleRL-math": "ScaleRL", "batch": "DAPO"}.get(
            self.name, self.name.split(":")[0]
        )

    @property
    def initial(self) -> float:
        """R_0 as inferred from the printed fits."""
        return SCOUT_INITIAL if "Scout" in self.name else PAPER_INITIAL

    def curve(self, start: float = TRANSIENT, stop: float = np.inf) -> Curve:
        """All points of a window."""
        inside = (self.compute >= start) & (self.compute <= stop)
        return Curve.from_points(self.compute[inside], self.pass_rate[inside], name=self.name)

    def fitted_points(self) -> Curve:
        """The points that the authors fitted, without the transient."""
        inside = ~self.extended & (self.compute >= TRANSIENT)
        return Curve.from_points(self.compute[inside], self.pass_rate[inside], name=self.name)

    def outcome(self) -> tuple[float, float]:
        """Compute (geometric mean) and mean pass rate of the last three later points."""
        compute, pass_rate = self.compute[self.extended][-3:], self.pass_rate[self.extended][-3:]
        return float(np.exp(np.log(compute).mean())), float(pass_rate.mean())


def data_folder() -> Path | None:
    """The folder of curves, or None if it is absent."""
    root = os.environ.get("ROLLCAST_SHARED_DATA")
    folder = Path(root) / "curves" if root else None
    return folder if folder and folder.is_dir() else None


def paper_runs(folder: Path) -> dict[tuple[str, str], PaperRun]:
    """Every reading, by figure and name; the merged reading of the main run is ("merged",
    "ScaleRL").
    """
    rows: dict[tuple[str, str], list[tuple[float, float, bool]]] = defaultdict(list)
    for row in _rows(folder / "scalerl" / "points.csv"):
        rows[row["figure"], row["run"]].append(
            (float(row["gpu_hours"]), float(row["pass_rate"]), row["kind"] == "extended")
        )
    for row in _rows(folder / "scalerl" / "scalerl_8b_bs768_merged.csv"):
        rows["merged", "ScaleRL"].append(
            (float(row["gpu_hours"]), float(row["pass_rate"]), row["kind"] == "extended")
        )
    runs = {}
    for (figure, name), points in rows.items():
        compute, pass_rate, extended = (
            np.array(column) for column in zip(*sorted(points), strict=True)
        )
        runs[figure, name] = PaperRun(figure, name, compute, pass_rate, extended.astype(bool))
    return runs


def published_fits(folder: Path) -> list[dict[str, str]]:
    """The numbers printed in legends and tables."""
    return list(_rows(folder / "scalerl" / "published_fits.csv"))


def other_runs(folder: Path) -> dict[str, Curve]:
    """Runs of other projects, whole: validation scores by GPU-hours or steps, training rewards by
    hours.
    """
    curves: dict[str, Curve] = {}
    for name in ("qwen2-7b-gpg", "qwen2-7b-gpg-megatron"):
        scores: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for row in _rows(folder / "qwen2-7b-gpg" / f"{name}.val.csv"):
            task = row["metric"].split("/")[2]
            scores[task].append((float(row["gpu_hours_excl_eval"]), float(row["score"])))
        for task, points in scores.items():
            curves[f"{name} {task}"] = _curve(points)
    for path in sorted((folder / "qwen3-0.6b-grpo").glob("*.csv")):
        points = [
            (float(row["step"]), float(row["eval_acc"]) / 100)
            for row in _rows(path)
            if (row.get("eval_acc") or "").strip()
        ]
        if points:
            curves[f"qwen3-0.6b {path.stem.removesuffix('_metrics')}"] = _curve(points)
    for path in sorted((folder / "qwen3.5-4b-toy-language").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        hours = np.cumsum([line["time/total"] for line in lines]) / 3600
        reward = np.clip([line["reward/mean"] for line in lines], 0, 1)
        curves[f"qwen3.5-4b {path.stem}"] = Curve.from_points(hours, reward)
    return curves


def own_runs() -> dict[str, Curve]:
    """The demo's runs as its benchmark kept them, whole: held-out pass rate by step, the start
    measured.
    """
    seeds = json.loads((RESULTS / "demo.json").read_text())["figures"]["seeds"]
    return {
        f"rollcast demo, seed {seed['seed']}": Curve.from_points(*zip(*seed["curve"], strict=True))
        for seed in seeds
    }


def truncating_run(folder: Path) -> Curve:
    """Training reward and truncation of the run that collapses by truncation."""
    rows = list(_rows(folder / "qwen2-7b-gpg" / "qwen2-7b-gpg.train.csv"))
    return Curve.from_points(
        [float(row["gpu_hours_excl_eval"]) for row in rows],
        np.clip([float(row["reward_mean"]) for row in rows], 0, 1),
        truncation_ratio=[float(row["truncation_rate"]) for row in rows],
        name="qwen2-7b-gpg training reward",
    )


def _curve(points: list[tuple[float, float]]) -> Curve:
    compute, score = zip(*points, strict=True)
    return Curve.from_points(compute, score)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)
