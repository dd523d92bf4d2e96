"""The plots of the commands, of the same runs as the page's."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from testkit.forecaster.page_states import FOREIGN, State

DEVICES = (
    "--devices 20 --step-seconds 12 --tokens-per-second 800 --mean-tokens 100 --longest-tokens 300 "
    "--groups 4 --rollouts 2 --slots 8 --publish-seconds 0"
)
"""A small pipeline, whose splits are searched in seconds."""


def draw_plots(states: Mapping[str, State], folder: Path) -> None:
    """Write the runs as CSV into FOLDER/curves, and the plot of every command that has one into
    FOLDER.
    """
    curves = folder / "curves"
    curves.mkdir(exist_ok=True)
    paths = {name: _written(state, curves / f"{state.run}.csv") for name, state in states.items()}
    for name, path in paths.items():
        _draw(folder, f"fit-{_slug(name)}", "fit", path, "--budget", f"{states[name].budget:g}")
    _draw(folder, "fit-without-budget", "fit", paths["rising"])
    _draw(folder, "fit-far-budget", "fit", paths["rising"], "--budget", "40000")
    _draw(folder, "backtest", "backtest", paths["rising"])
    together = [paths[name] for name in ("rising", "no ceiling", "collapsed")]
    _draw(folder, "compare", "compare", *together)
    _draw(
        folder,
        "plan-budget",
        "plan",
        "budget",
        paths["rising"],
        "--budget",
        "4000",
        "--target",
        "0.65",
    )
    _draw(folder, "plan-runs", "plan", "runs", *together, "--budget", "3000")
    sizes = [f"0.6B={paths['no ceiling']}", f"8B={paths['rising']}"]
    _draw(folder, "plan-sizes", "plan", "sizes", *sizes, "--budget", "3000")
    _draw(folder, "plan-devices", "plan", "devices", *DEVICES.split())


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _written(state: State, path: Path) -> str:
    compute = "step" if state.run == FOREIGN else "device_hours"
    rows = [f"{reading.compute:g},{reading.pass_rate:.4f}" for reading in state.readings()]
    path.write_text("\n".join([f"{compute},pass_rate", *rows]) + "\n")
    return str(path)


def _draw(folder: Path, name: str, *arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "rollcast.cli.main",
        *arguments,
        "--plot",
        str(folder / f"{name}.png"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{name}: " + (shlex.join(arguments) if done.returncode == 0 else done.stderr.strip()))
