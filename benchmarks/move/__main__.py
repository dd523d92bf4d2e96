"""Whether a change of the structure changed a number: `python -m benchmarks.move [BEFORE [AFTER]]`,
two revisions.

Both are checked out next to each other. Each forecasts the runs of benchmarks/results at every
number of evaluations, keeps their accounts, reads and writes recorded groups, and sends a version
of weights. The results must have the same bytes. It needs the repository's history.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testkit.forecaster.recorded_run import cut_off_from, record
from testkit.record import RESULTS, write_result

ROOT = Path(__file__).parents[2]
PROBE = Path(__file__).with_name("probe.py")
GROUPS = ROOT / "tests" / "trainer" / "recorded_groups.xz"
BEFORE = "ebd417d"
"""before curves/, scaling/, weights/ and the trainer's control got their rooms"""
PATIENCE_SECONDS = 3_600


def recorded_runs() -> list[dict[str, Any]]:
    """Six of the demo and four of the ablation, with their device-hours; tokens and errors were not
    written down.
    """
    runs = []
    for name, count in (("controls", 6), ("ablation_length_penalty", 4)):
        for run in json.loads((RESULTS / f"{name}.json").read_text())["figures"]["runs"][:count]:
            lines = [
                {
                    "incarnation": 1,
                    "step": step,
                    "pass_rate": pass_rate,
                    "compute_device_hours": compute,
                    "at": 1e9,
                }
                for step, compute, pass_rate in run["curve"]
            ]
            named = f"{name} {run['run']}"
            runs.append(
                {"run": named, "budget_steps": run["steps"], "evaluations": lines, "steps": []}
            )
    return runs


def made_runs() -> list[dict[str, Any]]:
    """What the recorded ones lack: standard errors, tokens, truncation, a restart that lost steps,
    a smaller fleet.
    """
    whole = record(30, seed=1)
    restarted = [
        *record(18, seed=2),
        *(_later(item, 0.1) for item in record(30, seed=3, incarnation=2)[15:]),
    ]
    halved = [
        {**line, "trained_tokens": line["trained_tokens"] * (1 if line["step"] <= 150 else 0.7)}
        for line in map(_line, record(30, seed=4))
    ]
    return [
        _run("made, whole", list(map(_line, whole))),
        _run("made, cut off", list(map(_line, cut_off_from(20, whole)))),
        _run("made, restarted", list(map(_line, restarted))),
        _run("made, fleet changed", halved),
    ]


def _later(item: Any, compute: float) -> Any:
    return type(item)(**{**asdict(item), "compute": item.compute + compute})


def _line(item: Any) -> dict[str, Any]:
    line = asdict(item)
    return {**line, "compute_device_hours": line.pop("compute"), "samples": 1024, "at": 1e9}


def _run(name: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [
        {"step": line["step"], "truncation_ratio": line.pop("truncation_ratio", 0.0)}
        for line in lines
    ]
    return {"run": name, "budget_steps": 400, "evaluations": lines, "steps": steps}


@contextmanager
def checked_out(revision: str, folder: Path) -> Iterator[Path]:
    """A worktree of the revision, for as long as it is needed."""
    git("worktree", "add", "--detach", str(folder), revision)
    try:
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.strip()


def asked(revision: str, runs: Path, folder: Path) -> dict[str, Any]:
    """What the revision says of the runs and groups."""
    output = folder / "told.json"
    with checked_out(revision, folder / "tree") as tree:
        environment = {**os.environ, "PYTHONPATH": str(tree / "services"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(PROBE), str(runs), str(GROUPS), str(output)]
        subprocess.run(command, cwd=tree, env=environment, timeout=PATIENCE_SECONDS, check=True)
    told: dict[str, Any] = json.loads(output.read_text())
    return told


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "before", nargs="?", default=BEFORE, help=f"a revision, {BEFORE} if not given"
    )
    parser.add_argument("after", nargs="?", default="HEAD", help="a revision, HEAD if not given")
    arguments = parser.parse_args()
    revisions = [git("rev-parse", revision) for revision in (arguments.before, arguments.after)]
    runs = [*recorded_runs(), *made_runs()]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "runs.json").write_text(json.dumps(runs))
        told = []
        for place, revision in enumerate(revisions):
            (folder / str(place)).mkdir()
            told.append(asked(revision, folder / "runs.json", folder / str(place)))
    before, after = told
    differing = [
        f"{part} {key}"
        for part, found in before.items()
        for key in found
        if found[key] != after[part].get(key)
    ]
    figures = {
        "before": revisions[0],
        "after": revisions[1],
        "runs": {"recorded": len(recorded_runs()), "made": len(made_runs())},
        "forecasts": sum(map(len, before["forecasts"].values())),
        "accounts": len(before["accounts"]),
        "wire": before["wire"],
        "weights": before["weights"],
        "differing": differing,
        "digests": {
            run: {part: before[part][run] for part in ("fit", "accounts")} for run in before["fit"]
        },
    }
    print(
        f"{figures['forecasts']} forecasts, {figures['accounts']} accounts, "
        f"{before['wire']['num_groups']} groups"
    )
    print(f"differing: {', '.join(differing) or 'none'}")
    print(write_result("move", figures))
    if differing or before.keys() != after.keys():
        raise SystemExit(1)


if __name__ == "__main__":
    main()
