"""The end of a real trainer: its last evaluation stays on /metrics until those who read it have
come again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from rollcast.config.connections import Redis
from rollcast.config.run import load_run_config
from rollcast.connections.port_files import port_file
from rollcast.local.ports import free_port
from rollcast.local.status import StatusReader
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import RolloutGroup
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.telemetry import evaluation_metrics, forecaster_metrics
from rollcast.trainer.service import LAST_READING_SECONDS
from rollcast.wire.version import PolicyVersion
from testkit.forecaster.recorded_run import run_file
from testkit.forked_programs import ForkedPrograms
from testkit.rollouts.examples import make_answer_group, make_graded_rollout
from testkit.system.harness import System, wait_for
from testkit.tiny_model import make_tiny_model

pytestmark = pytest.mark.timeout(600)

VERSION = PolicyVersion(1, 0)
START_SECONDS = 240.0
PATIENCE_SECONDS = 6.0
"""Of a trainer that waits for less long for those who read its last metrics."""


@contextmanager
def ending_trainer(
    folder: Path, trainers: ForkedPrograms, patience: float = LAST_READING_SECONDS
) -> Iterator[System]:
    """A trainer whose budget is used up at once, and which waits for the answers to its only
    evaluation.
    """
    make_tiny_model(folder / "model", max_length=128)
    settings = {
        "run": "short",
        "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 128},
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 2, "size": 100},
            "evaluation": {"num_prompts": 4, "rollouts_per_prompt": 2},
        },
        "recipe": {
            "length_control": {"kind": "none"},
            "prompts_per_step": 4,
            "max_prompt_tokens": 32,
            "max_completion_tokens": 64,
        },
        "trainer": {"threads": 1, "http_port": free_port("127.0.0.1")},
        "budget": {"device_hours": 1e-9},
    }
    with System(folder, settings) as system:
        system.processes["trainer"] = trainers.start(
            "rollcast.trainer",
            ["--config", str(system.config)],
            system.folder / "trainer.log",
            settings={"LAST_READING_SECONDS": patience},
        )
        wait_for(
            lambda: is_on(system, "training ends"), START_SECONDS, "the trainer's last evaluation"
        )
        yield system


def is_on(system: System, words: str) -> bool:
    log = system.log("trainer")
    assert system.processes["trainer"].poll() is None, log[-3000:]
    return words in log


def answer_evaluation(system: System) -> None:
    """What a generator would send."""

    async def answer() -> None:
        queue = RedisGeneratorQueue(Redis(port=system.redis_port), system.settings["run"], "g")
        answered = 0
        while answered < 4:
            for claimed in await queue.claim(
                train=0, evals=4, first_version=lambda: VERSION, block_seconds=1.0
            ):
                assert await queue.publish(claimed, answered_group(claimed))
                answered += 1
        await queue.close()

    asyncio.run(answer())


def answered_group(claimed: Claimed) -> RolloutGroup:
    """Every second rollout is right."""
    rollouts = [
        make_graded_rollout(index, float(index % 2), VERSION)
        for index in range(claimed.task.num_rollouts)
    ]
    return make_answer_group(claimed.task, rollouts, first_version=VERSION)


def pass_rate(system: System) -> float | None:
    """As the trainer's page shows it; None where it does not."""
    with suppress(httpx.HTTPError):
        for (name, _), value in system.metrics("trainer").items():
            if name == evaluation_metrics.EVAL_PASS_RATE.name:
                return value
    return None


def has_read(forecaster: Path) -> bool:
    """Whether a forecaster's source has answered. forecaster: its run folder."""
    with suppress(httpx.HTTPError, FileNotFoundError):
        port = int(port_file(forecaster, "forecaster").read_text())
        lines = httpx.get(f"http://127.0.0.1:{port}/metrics").text.splitlines()
        return any(
            line.startswith(forecaster_metrics.FORECAST_SOURCE_UP.name) and line.endswith(" 1.0")
            for line in lines
        )
    return False


def test_the_last_evaluation_is_there_for_who_reads_every_few_seconds(
    tmp_path: Path, trainers: ForkedPrograms
) -> None:
    with ending_trainer(tmp_path, trainers) as system:
        assert pass_rate(system) is None
        answer_evaluation(system)
        wait_for(lambda: (system.run_folder / "model").exists(), 60, "the exported model")
        time.sleep(5.0)
        assert system.processes["trainer"].poll() is None, "nobody has read it"
        assert pass_rate(system) == 0.5
        assert system.processes["trainer"].wait(20) == 0


def test_sigterm_ends_the_wait_at_once_and_the_run_is_finished(
    tmp_path: Path, trainers: ForkedPrograms
) -> None:
    with ending_trainer(tmp_path, trainers) as system:
        answer_evaluation(system)
        wait_for(lambda: (system.run_folder / "model").exists(), 60, "the exported model")
        time.sleep(1.0)
        began = time.monotonic()
        assert system.terminate("trainer") == 0
        assert time.monotonic() - began < 25, "of the thirty that it would wait"


def test_nobody_is_waited_for_for_longer_than_half_a_minute(
    tmp_path: Path, trainers: ForkedPrograms
) -> None:
    assert LAST_READING_SECONDS == 30.0
    with ending_trainer(tmp_path, trainers, PATIENCE_SECONDS) as system:
        answer_evaluation(system)
        wait_for(lambda: (system.run_folder / "model").exists(), 60, "the exported model")
        began = time.monotonic()
        assert system.processes["trainer"].wait(60) == 0
        assert time.monotonic() - began > PATIENCE_SECONDS / 2
        assert "not every reader of the metrics has read the last ones" in system.log("trainer")


def test_a_forecaster_sees_the_last_evaluation_though_others_read_more_often(
    tmp_path: Path, trainers: ForkedPrograms
) -> None:
    """It reads the page alone, every five seconds; what shows the run reads it ten times a
    second.
    """
    with ending_trainer(tmp_path / "trainer", trainers) as system, ExitStack() as stack:
        elsewhere = tmp_path / "forecaster"
        elsewhere.mkdir()
        page = f"http://127.0.0.1:{system.settings['trainer']['http_port']}/metrics"
        config = run_file(elsewhere, {"kind": "scrape", "urls": [page], "every_seconds": 5.0})
        forecaster = subprocess.Popen(
            [sys.executable, "-m", "rollcast.forecaster", "--config", str(config)]
        )
        stack.callback(forecaster.wait)
        stack.callback(forecaster.kill)
        wait_for(lambda: has_read(elsewhere / "demo"), 120, "the forecaster's first look")
        ended = threading.Event()
        stack.callback(ended.set)
        reader = StatusReader(load_run_config(system.config))

        def show() -> None:
            while not ended.wait(0.1):
                reader.read()

        threading.Thread(target=show, daemon=True).start()
        answer_evaluation(system)
        assert system.processes["trainer"].wait(90) == 0, system.log("trainer")[-3000:]
        time.sleep(1.0)
        with closing(sqlite3.connect(elsewhere / "demo" / "forecasts.sqlite")) as connection:
            assert connection.execute(
                "SELECT run, step, pass_rate FROM evaluations"
            ).fetchall() == [("short", 0, 0.5)]
