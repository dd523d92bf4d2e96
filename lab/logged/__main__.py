"""Pictures of what loggers show of a run: TensorBoard and MLflow in a browser, W&B's offline file
read back.

    python -m lab.logged [--steps 28] [--run-folder FOLDER]

One run of the demo's task logs to all three: TensorBoard's files, a real MLflow server, W&B
offline. A finished run is logged from a copy of its folder instead. The pictures show curves,
samples and advice: docs/images/logged-*.png. Needs requirements/loggers.txt and the Debian package
chromium.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import yaml
from PIL import Image
from playwright.sync_api import sync_playwright

from benchmarks.short_demo import short_demo
from lab.logged.offline import draw_offline
from rollcast.config.resolved import write_resolved
from rollcast.config.run import parse_run_config
from rollcast.local.ports import free_port
from rollcast.runfolder.files import LOGGED, RUN_FILE, STEPS
from testkit.forecaster.browser import CHROMIUM, FLAGS
from testkit.mlflow_server import mlflow_server
from testkit.system.command import read_output, rollcast
from testkit.system.harness import wait_for

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
RUN = "sums"
LIMIT_SECONDS = 900.0
WAIT = 240_000
"""Milliseconds, of a page."""
COLOURS = 64
CURVES = "eval/pass_rate|forecast/end_median|train/reward_mean|train/entropy"


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Its server over the event files in `folder`."""
    url = f"http://127.0.0.1:{(port := free_port('127.0.0.1'))}"
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder),
        "--port",
        str(port),
        "--bind_all",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:

        def has_run() -> bool:
            assert server.poll() is None
            try:
                return bool(httpx.get(f"{url}/data/runs", timeout=5.0).json())
            except (httpx.HTTPError, ValueError):
                return False

        try:
            wait_for(has_run, LIMIT_SECONDS, "an answer of TensorBoard")
            yield url
        finally:
            server.terminate()


class Browser:
    """Takes pictures of pages."""

    def __init__(self, playwright: Any) -> None:
        self._browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

    def picture(
        self,
        url: str,
        wanted: str,
        name: str,
        *,
        height: int,
        left: int = 0,
        settle: float = 3.0,
        sought: str = "",
    ) -> None:
        """Take a picture of the page once it shows the text `wanted`.

        `settle`: seconds for animations. `left`: pixels cut off, which show paths of the machine.
        `sought`: text for the page's search; without it the page draws only its first charts.
        """
        page = self._browser.new_page(
            viewport={"width": 1280, "height": height}, device_scale_factor=0.8
        )
        page.set_default_timeout(WAIT)
        page.goto(url, wait_until="commit")
        if sought:
            page.get_by_placeholder("Search metric charts").fill(sought)
        page.get_by_text(wanted).first.wait_for()
        page.wait_for_timeout(1000 * settle)
        shot = page.screenshot(clip={"x": left, "y": 0, "width": 1280 - left, "height": height})
        page.close()
        path = IMAGES / f"logged-{name}.png"
        Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS).save(path, optimize=True)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")

    def close(self) -> None:
        self._browser.close()


def logs(mlflow: str) -> list[dict[str, Any]]:
    return [
        {"kind": "tensorboard"},
        {"kind": "mlflow", "url": mlflow, "experiment": RUN},
        {"kind": "wandb", "project": RUN, "mode": "offline"},
    ]


def train(folder: Path, steps: int, mlflow: str) -> Path:
    """Make a run that logs to all three; returns its folder."""
    settings = short_demo(RUN, steps) | {"folder": "runs"}
    settings["log"] = logs(mlflow)
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    with rollcast(folder, "up", "--config", "run.yaml") as up:
        assert up.wait(LIMIT_SECONDS) == 0, read_output(folder)
    return folder / "runs" / RUN


def tell(run: Path, folder: Path, mlflow: str) -> Path:
    """Log a copy of a run's folder to all three, by the process that `up` starts."""
    of_copy = folder / "runs" / RUN
    shutil.copytree(
        run,
        of_copy,
        ignore=shutil.ignore_patterns("logged", "tensorboard", "wandb", "ports", "model"),
    )
    config = parse_run_config(
        short_demo(RUN, 1) | {"folder": str(folder / "runs"), "log": logs(mlflow)}, source="here"
    )
    write_resolved(config, of_copy / RUN_FILE)
    steps = len((of_copy / STEPS).read_text().splitlines())
    command = [sys.executable, "-m", "rollcast.loggers", "--config", str(of_copy / RUN_FILE)]
    with subprocess.Popen(command) as loggers:

        def all_told() -> bool:
            assert loggers.poll() is None
            kept = list((of_copy / LOGGED).glob("*.json"))
            return len(kept) == 3 and all(
                json.loads(file.read_text())["lines"].get(STEPS) == steps for file in kept
            )

        wait_for(all_told, LIMIT_SECONDS, "the last record at each")
        loggers.terminate()
        loggers.wait(LIMIT_SECONDS)
    return of_copy


def pictures_of_mlflow(browser: Browser, url: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(url)
    experiment = client.get_experiment_by_name(RUN).experiment_id
    (run,) = client.search_runs([experiment])
    here = f"{url}/#/experiments/{experiment}/runs/{run.info.run_id}"
    newest = client.list_artifacts(
        run.info.run_id, client.list_artifacts(run.info.run_id, "samples")[0].path
    )[-1].path
    browser.picture(f"{here}/model-metrics", "eval/pass_rate", "mlflow", height=900, sought=CURVES)
    browser.picture(here, "forecast/advice", "mlflow-advice", height=900)
    browser.picture(f"{here}/artifacts/{quote(newest)}", "completion", "mlflow-samples", height=560)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lab.logged", description="Draw what loggers show."
    )
    parser.add_argument("--steps", type=int, default=28, help="optimizer steps of the run")
    parser.add_argument(
        "--run-folder", type=Path, help="of a run that is over, to be told instead of a new one"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with mlflow_server(folder) as mlflow, sync_playwright() as playwright:
            if arguments.run_folder is None:
                run = train(folder, arguments.steps, mlflow)
            else:
                run = tell(arguments.run_folder, folder, mlflow)
            told = {
                path.stem: json.loads(path.read_text())["lines"]
                for path in (run / "logged").glob("*.json")
            }
            print("lines told:", json.dumps(told))
            browser = Browser(playwright)
            with tensorboard(run / "tensorboard") as url:
                browser.picture(
                    f"{url}/?tagFilter={quote(CURVES)}#timeseries",
                    "eval/pass_rate",
                    "tensorboard",
                    height=900,
                )
                browser.picture(
                    f"{url}/#text", "forecast/advice", "tensorboard-text", height=900, left=315
                )
            pictures_of_mlflow(browser, mlflow)
            browser.close()
            (file,) = run.rglob("*.wandb")
            draw_offline(file, IMAGES / "logged-wandb.png")


if __name__ == "__main__":
    main()
