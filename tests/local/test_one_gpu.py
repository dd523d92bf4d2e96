"""A whole run on one GPU, up to the processes: the driver's answer is a script, and torch's build a
name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.local import devices, preflight, up
from rollcast.local.devices import VISIBLE
from rollcast.local.process import ServiceSpec
from rollcast.local.supervisor import RunState
from rollcast.local.up import run_locally
from rollcast.memory.check import plan_run
from rollcast.memory.device import Device
from rollcast.memory.verdict import refusals, warnings
from rollcast.runfolder.files import RUN_FILE, UP_FILE
from rollcast.telemetry.gpus import EXPECTED_GPUS
from rollcast.throughput.assumptions import Assumptions
from rollcast.throughput.balance import predict
from rollcast.throughput.card import find_card
from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_0_6B
from tests.cli.command import rollcast

MAX_IDLE = 0.15
PROFILE = Path(__file__).parents[2] / "configs" / "one-gpu.yaml"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """The profile, with the model's shape in a folder and without the hub."""
    write_model(tmp_path / "model", QWEN3_0_6B)
    found: dict[str, Any] = yaml.safe_load(PROFILE.read_text())
    found["model"]["path"] = str(tmp_path / "model")
    found["folder"] = str(tmp_path / "runs")
    found |= {"redis": {"port": 0}, "rpc": {"port": 0}, "forecaster": {"http_port": 0}}
    return found


@pytest.fixture
def one_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has one GPU of 80 GB, as far as it is asked for that."""
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir()
    driver.write_text("#!/bin/sh\necho 81559\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(driver.parent), prepend=":")
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setattr(devices, "version", lambda package: "2.13.0")
    monkeypatch.setattr(preflight, "free_bytes", lambda: 128 << 30)


class Lines:
    """A view that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def begin(self, config: RunConfig) -> None:
        pass

    def report(self, line: str, *, trouble: bool = False) -> None:
        self.lines.append(line)

    def tick(self, run_state: RunState = RunState.RUNNING) -> None:
        pass


def started(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lines, dict[str, dict[str, str]]]:
    """What `up` says, and service -> what its first process gets that names GPUs.

    No process is started.
    """
    specs: list[ServiceSpec] = []

    def supervise(services: up.LocalServices, tick: object) -> RunState:
        specs.extend(services.specs)
        return RunState.FINISHED

    monkeypatch.setattr(up.LocalServices, "supervise", supervise)
    view = Lines()
    run_locally(config, resume=False, view=view)
    environments = {spec.name: dict(spec.commands[0].environment()) for spec in specs}
    return view, {
        name: {key: one.get(key, "") for key in (VISIBLE, EXPECTED_GPUS)}
        for name, one in environments.items()
    }


@pytest.mark.parametrize("gb", [80, 141])
def test_the_profile_fits_the_cards_that_it_is_for(gb: int, settings: dict[str, Any]) -> None:
    plan = plan_run(
        parse_run_config(settings, source="test"), Device("gpu", gb * 10**9), ranks=None
    )
    assert plan is not None
    assert plan.shares_gpu
    assert refusals(plan) == []
    assert plan.worker.tokens_per_slot >= 256, "an answer of the usual length is not preempted"
    assert warnings(plan) == []


def test_the_card_of_the_profile_is_hardly_idle(settings: dict[str, Any]) -> None:
    """Trainer and generators take turns: each waits for the other, and the card for neither."""
    config = parse_run_config(settings, source="test")
    plan = plan_run(config, Device("gpu", 80 * 10**9), ranks=None)
    assert plan is not None
    idle = predict(
        plan, find_card(plan.device.num_bytes), config.local.generators, Assumptions()
    ).gpu_idle
    assert idle is not None
    assert idle < MAX_IDLE


def test_the_profile_is_checked_for_a_card_elsewhere(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "one-gpu.yaml"
    file.write_text(yaml.safe_dump(settings))
    done = rollcast("config", "check", file, "--elsewhere", "--gpu", "80")
    assert done.returncode == 0, done.stderr
    assert "whether the model fits the memory" not in done.stdout
    assert "the GPU that they share" in done.stdout
    assert (
        "one GPU: trainer and generators share it (generator.gpu_memory_utilization 0."
        in " ".join(done.stdout.split())
    )
    assert load_run_config(PROFILE).local.shares_gpu


@pytest.mark.usefixtures("one_card")
def test_up_divides_the_card_and_says_how(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without local.gpus: this machine has one card."""
    del settings["local"]
    settings["tasks"] = {
        "dataset": {"kind": "arithmetic"},
        "evaluation": {"num_prompts": 64, "every_steps": 10},
    }
    config = parse_run_config(settings, source="test")
    view, environments = started(config, monkeypatch)
    own = {VISIBLE: "0", EXPECTED_GPUS: "1"}
    assert environments["trainer"] == environments["generator-0"] == own
    assert environments["forecaster"] == {VISIBLE: "", EXPECTED_GPUS: "0"}
    (said,) = [line for line in view.lines if line.startswith("one GPU:")]
    assert "weights travel over gloo, through host memory" in said
    resolved = json.loads((tmp_path / "runs" / "one-gpu" / RUN_FILE).read_text())
    assert resolved["local"]["gpus"] == 1
    assert resolved["weights"]["stage"] == "host"
    share = resolved["generator"]["gpu_memory_utilization"]
    assert 0.1 < share < 0.9
    assert f"generator.gpu_memory_utilization {share:g}" in said
    given = json.loads((tmp_path / "runs" / "one-gpu" / UP_FILE).read_text())
    assert given["local"]["gpus"] is None, "a resume on another machine divides anew"
    assert given["generator"]["gpu_memory_utilization"] == 0.9


@pytest.mark.usefixtures("one_card")
def test_up_warns_of_a_full_cache_in_the_words_of_config_check(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["generator"] = {**settings.get("generator", {}), "slots": 4_000}
    settings["tasks"] = {
        "dataset": {"kind": "arithmetic"},
        "evaluation": {"num_prompts": 64, "every_steps": 10},
    }
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    (warning,) = [
        line for line in preflight.check(load_run_config(file)) if "generator.slots" in line
    ]
    assert "fill the KV cache to" in warning
    shown = rollcast("config", "check", file, "--elsewhere", "--gpu", "85.519").stdout
    assert f"caution: {warning}" in " ".join(shown.split())


@pytest.mark.usefixtures("one_card")
def test_up_refuses_what_one_card_cannot_hold(settings: dict[str, Any]) -> None:
    settings["tasks"] = {
        "dataset": {"kind": "arithmetic"},
        "evaluation": {"num_prompts": 64, "every_steps": 10},
    }
    settings["trainer"] = {"tokens_per_micro_batch": 200_000}
    with pytest.raises(UserError, match=r"one GPU has 85\.5 GB; the trainer needs [\d.]+ GB"):
        preflight.check(parse_run_config(settings, source="test"))
