"""One prior for each repository of a folder of curves, learned from the curves of all others.

    python -m benchmarks.world_prior --curves FOLDER --out FOLDER [--candidates N] [--seed N]

Settings of the prior are drawn at random around the default. Each is fitted to the beginnings of all curves, and its
forecasts of their ends are scored (pinball loss over five quantiles). For each repository the mean of the half of the
settings with the least loss on all others is written as REPOSITORY.json (slash as __), for `rollcast fit --prior`. The
very best one owes its lead to luck. One repository has one vote, and so has each cell of two repositories or more: a
metric and the share of the curve that is seen.

The losses are kept in OUT/losses.jsonl, so that a search that was stopped goes on and a longer one continues from
the end of the last one. They are those of this fitter: remove the file after a change of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.world_prior.windows import Window
    from rollcast.scaling.posterior.prior import Prior

CANDIDATES = 40
BEST = 2
"""One setting in this many is kept, at least one."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Losses = dict[str, dict[str, float]]
"""Cell -> repository -> mean loss."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.world_prior", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--curves", type=Path, required=True, help="folder with index.csv and NAME.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder for the priors and the losses")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="settings tried, the default one among them")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    from benchmarks.world_prior.candidates import candidate, mean_of
    from benchmarks.world_prior.windows import windows

    try:
        found = windows(arguments.curves)
    except ValueError as error:
        parser.error(str(error))
    repositories = sorted({window.repository for window in found})
    if len(repositories) < 2 or arguments.candidates < 1 or arguments.seed < 0:
        parser.error(
            f"--curves: windows of {len(repositories)} repositories; --candidates {arguments.candidates}, --seed "
            f"{arguments.seed}: two repositories are needed, one candidate, and a seed of 0 or more"
        )
    arguments.out.mkdir(parents=True, exist_ok=True)
    priors = [candidate(arguments.seed, number) for number in range(arguments.candidates)]
    try:
        losses = _searched(arguments.out / "losses.jsonl", found, priors)
    except ValueError as error:
        parser.error(str(error))
    for left_out in repositories:
        others = [name for name in repositories if name != left_out]
        relative = [_relative(each, losses[0], others) for each in losses]
        best = sorted(range(len(priors)), key=relative.__getitem__)[: max(1, len(priors) // BEST)]
        lead = sum(relative[number] for number in best) / len(best)
        origin = {
            "made_by": "benchmarks.world_prior",
            "left_out": left_out,
            "learned_from": others,
            "mean_of_candidates": best,
            "of_candidates": len(priors),
            "seed": arguments.seed,
            "their_loss_over_that_of_the_default": round(lead, 4),
        }
        path = arguments.out / f"{left_out.replace('/', '__')}.json"
        prior = asdict(mean_of([priors[number] for number in best]))
        path.write_text(json.dumps({**origin, "prior": prior}, indent=1) + "\n")
        told = ", ".join(map(str, best))
        print(f"{path.name}: mean of candidates {told}; {lead:.4f} of the default's loss on the others")
    return 0


def _searched(path: Path, found: list[Window], priors: list[Prior]) -> list[Losses]:
    """Scores of each prior; those that the file holds already are read, the others are added to it.

    Raises:
        ValueError: the file was made of other windows.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    curves = {"windows": len(found), "curves": _digest(found)}
    if not lines:
        path.write_text(json.dumps(curves) + "\n")
    elif lines[0] != curves:
        raise ValueError(f"{path}: holds the losses of other curves; remove it, or choose another --out")
    known = {json.dumps(line["prior"]): line["losses"] for line in lines[1:]}
    losses: list[Losses] = []
    for number, prior in enumerate(priors):
        key = json.dumps(asdict(prior))
        if key not in known:
            known[key] = _losses(found, prior)
            with path.open("a") as file:
                file.write(json.dumps({"prior": asdict(prior), "losses": known[key]}) + "\n")
            print(f"candidate {number}: {_relative(known[key], losses[0] if losses else known[key]):.4f}", flush=True)
        losses.append(known[key])
    return losses


def _digest(found: Iterable[Window]) -> str:
    """Hash of all seen points and all outcomes."""
    whole = hashlib.sha256()
    for window in found:
        whole.update(repr((window.cell, window.repository, window.ahead, window.outcome)).encode())
        whole.update(window.seen.compute.tobytes() + window.seen.pass_rate.tobytes())
        whole.update(b"" if window.seen.standard_error is None else window.seen.standard_error.tobytes())
    return whole.hexdigest()[:16]


def _losses(found: Iterable[Window], prior: Prior) -> Losses:
    """Mean pinball loss of the forecasts under `prior`, by cell and repository."""
    from rollcast.scaling.decisions.fit import fit
    from rollcast.scaling.posterior.options import FitOptions

    of: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for window in found:
        said = fit(window.seen, FitOptions(prior=prior)).predictive(window.ahead, QUANTILES).mean(axis=1)
        short = [window.outcome - float(value) for value in said]
        loss = [max(level * by, (level - 1.0) * by) for level, by in zip(QUANTILES, short, strict=True)]
        of[window.cell][window.repository].append(sum(loss) / len(loss))
    return {cell: {name: sum(each) / len(each) for name, each in votes.items()} for cell, votes in of.items()}


def _relative(losses: Losses, default: Losses, repositories: Iterable[str] | None = None) -> float:
    """Loss over that of the default prior: the mean over `repositories` (None: all) in each cell, then over cells."""
    ratios = []
    for cell, votes in losses.items():
        voting = [name for name in votes if repositories is None or name in repositories]
        if voting and len(votes) > 1:  # of a cell with one repository that one would have the vote of a whole cell
            ratios.append(sum(votes[name] for name in voting) / sum(default[cell][name] for name in voting))
    return sum(ratios) / len(ratios)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
