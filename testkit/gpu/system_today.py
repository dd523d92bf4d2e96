"""Training as teams do it today, as whole systems on one card.

system-lora: adapters of the demo's model, served by vLLM's LoRA. system-episodes:
examples/calculator, whose tools run in processes of their own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from rollcast.local.demo.base_model import cache_folder
from testkit.gpu.live_run import LiveRun
from testkit.gpu.run_settings import RUN, START_SECONDS, STEPS_SECONDS, demo_settings, step_figures
from testkit.record import ROOT
from testkit.system.audit import read_lines

EXAMPLE = ROOT / "examples" / "calculator"
STEPS = 60
FEWER_MODEL_STEPS = (
    "import make_model; make_model.NUM_STEPS = 40; make_model.BATCH = 1; make_model.main()"
)


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """Figures and targets of one scenario."""
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as path:
        folder = Path(path)
        prepare = adapters if name == "system-lora" else episodes
        settings = prepare(folder, is_small=is_small)
        (folder / "run.yaml").write_text(yaml.safe_dump(settings))
        return measure_run(folder, 2 if is_small else STEPS, has_card=not is_small)


def adapters(folder: Path, *, is_small: bool) -> dict[str, Any]:
    """The demo's task; the rate is ten times that of full fine-tuning, as "LoRA without regret"
    advises.
    """
    settings = demo_settings(folder, is_small=is_small)
    # vLLM refuses adapters in float32 on a GPU. Tiny models on a CPU are float32.
    settings["model"] |= {"lora": {"rank": 32}, "dtype": "float32" if is_small else "bfloat16"}
    settings["recipe"]["optimizer"]["learning_rate"] = 1.0e-3
    settings["local"] = {"generators": 1}
    return settings


def episodes(folder: Path, *, is_small: bool) -> dict[str, Any]:
    """The example's own run file, without a limit of its steps."""
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    make_model(folder, is_small=is_small)
    settings: dict[str, Any] = yaml.safe_load((folder / "run.yaml").read_text())
    settings["run"] = RUN
    settings["budget"] = {"steps": 100_000}
    settings["generator"] = {"slots": 128, "block_size": 32, "drain_seconds": 2}
    for service, port in (("redis", "port"), ("rpc", "port"), ("forecaster", "http_port")):
        settings[service] = {port: 0}
    return settings


def make_model(folder: Path, *, is_small: bool) -> None:
    """The example's model and tasks: a short training, or those of the cache."""
    if is_small:
        _train(folder, "-c", FEWER_MODEL_STEPS)
    else:
        shutil.copytree(ensure_example(), folder, dirs_exist_ok=True)


def ensure_example() -> Path:
    """The example's folder with its model and tasks, made in the cache if it is not there, or was
    made otherwise.
    """
    recipe = hashlib.sha256((EXAMPLE / "make_model.py").read_bytes()).hexdigest()[:12]
    example_folder = cache_folder() / f"{EXAMPLE.name}-{recipe}"
    if not example_folder.is_dir():
        example_folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=example_folder.parent) as temporary:
            temporary_folder = Path(temporary) / EXAMPLE.name
            shutil.copytree(EXAMPLE, temporary_folder)
            _train(temporary_folder, "make_model.py")
            temporary_folder.rename(example_folder)
    return example_folder


def _train(folder: Path, *arguments: str) -> None:
    without_card = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    # The example's model takes some minutes on one core
    subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=without_card, check=True, timeout=1_500.0
    )


def measure_run(folder: Path, steps: int, *, has_card: bool) -> dict[str, Any]:
    """The run until step `steps` and its end by Ctrl-C."""
    with LiveRun(folder, RUN, ["up", "--config", "run.yaml"], has_card=has_card) as run:
        first = run.wait_step(1, START_SECONDS)
        run.wait_step(steps, STEPS_SECONDS)
        code = run.interrupt()
        evaluations = read_lines(run.folder / "evaluations.jsonl")
        pass_rates = [[line["step"], round(line["pass_rate"], 4)] for line in evaluations]
        return {
            "seconds_to_first_step": first,
            "exit_code_after_ctrl_c": code,
            **step_figures(run.steps),
            "pass_rates": pass_rates,
            "targets": {
                "steps are made": run.last_step >= steps,
                "the run ends at Ctrl-C": code == 130,
            },
        }
