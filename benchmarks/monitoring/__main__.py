"""Pictures of the Grafana dashboards as `rollcast up --monitor` leaves them, of two real runs,
without Grafana.

    python -m benchmarks.monitoring [--steps 60]

Two runs of the demo's task at different learning rates, one after the other, each up to two thirds
of its steps, with a generator killed half-way there. Each has the Prometheus that `--monitor`
starts; the second one's has been given the first one's data, so that both can be compared. Then
every query of the dashboards in the second run's folder is asked as Grafana would ask it, and its
answer drawn at its panel's place: docs/images/dashboard-*.png. Needs the Debian package prometheus;
takes some minutes.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from benchmarks.monitoring.drawing import draw
from benchmarks.short_demo import short_demo
from rollcast.config.run import load_run_config
from rollcast.local.monitor import SCRAPE_SECONDS
from testkit.monitoring.grafana import load
from testkit.monitoring.recording import Recording
from testkit.system.command import goes_on, last_step, read_output, rollcast
from testkit.system.harness import wait_for

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
LIMIT_SECONDS = 1_200.0
LEARNING_RATES = {"demo-half-lr": 4e-5, "demo": 8e-5}
"""The last one is what the dashboards of a single run show."""
TARGET = 0.7


@contextmanager
def watched(folder: Path, run: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    """The run, under way, at two thirds of its steps."""
    settings = short_demo(run, steps, learning_rate=LEARNING_RATES[run], generators=2)
    settings |= {"folder": "runs"}
    settings["weights"] |= {"heartbeat_timeout_seconds": 15, "bucket_timeout_seconds": 10}
    (folder / f"{run}.yaml").write_text(yaml.safe_dump(settings))
    of_run = folder / "runs" / run
    with rollcast(folder, "up", "--config", f"{run}.yaml", "--monitor") as up:
        for place, step in enumerate((steps // 3, 2 * steps // 3)):
            wait_for(
                lambda step=step: goes_on(up, folder) and last_step(of_run) >= step,  # type: ignore[misc]
                LIMIT_SECONDS,
                f"step {step}",
            )
            if place == 0:
                _generator(up.pid).kill()
        yield up


def _generator(command: int) -> psutil.Process:
    return next(
        child for child in psutil.Process(command).children() if "generator-1" in child.cmdline()
    )


@contextmanager
def recorded(folder: Path, steps: int) -> Iterator[Recording]:
    """Both runs; yields while the last one is still at work."""
    began, (first, last) = time.time(), LEARNING_RATES
    with watched(folder, first, steps) as up:
        up.send_signal(signal.SIGINT)
        assert up.wait(LIMIT_SECONDS) == 130, read_output(folder)
    of_first, of_last = (folder / "runs" / run / "monitor" / "data" for run in (first, last))
    shutil.copytree(of_first, of_last, ignore=shutil.ignore_patterns("lock"))
    with watched(folder, last, steps) as up:
        config = load_run_config(folder / "runs" / last / "run.json")
        yield Recording(
            prometheus=f"http://127.0.0.1:{config.local.prometheus_port}",
            forecaster=f"http://127.0.0.1:{config.forecaster.http_port}/prometheus",
            runs=(first, last),
            began=began,
            at=time.time(),
            namespace="",
            scrape_seconds=SCRAPE_SECONDS,
        )
        up.send_signal(signal.SIGINT)
        up.wait(LIMIT_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.monitoring", description="Draw the dashboards."
    )
    parser.add_argument(
        "--steps", type=int, default=60, help="optimizer steps of each run's budget"
    )
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as name, recorded(folder := Path(name), steps) as recording:
        for path in sorted(
            (folder / "runs" / recording.runs[-1] / "monitor" / "dashboards").glob("*.json")
        ):
            if path.stem == "rollcast-episodes":
                continue  # these runs have no episodes; `benchmarks.monitoring.episodes` draws it
            picture = IMAGES / f"dashboard-{path.stem.removeprefix('rollcast-')}.png"
            draw(load(path), recording, TARGET, picture)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
