"""The trainer on two machines: two launchers with one real rank each, over gloo. However it ends, none says "done".

A Job makes no pod again that ended with 0, and then the others would wait for it for ever.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rollcast.local.ports import free_port
from testkit.system.harness import System, wait_for
from testkit.tiny_model import make_tiny_model

pytestmark = pytest.mark.timeout(900)

START_SECONDS = 240.0
END_SECONDS = 60.0


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    make_tiny_model(tmp_path / "model", max_length=128)
    settings = {
        "run": "machines",
        "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 128},
        "tasks": {"dataset": {"kind": "arithmetic", "max_digits": 2, "size": 100}, "evaluation": {"num_prompts": 4}},
        "recipe": {"length_control": {"kind": "none"}, "prompts_per_step": 4, "max_prompt_tokens": 32}
        | {"max_completion_tokens": 64},
        "trainer": {"threads": 1, "http_port": free_port("127.0.0.1")},
    }
    with System(tmp_path, settings) as system:
        yield system


def start(system: System, *, resume: bool = True) -> None:
    port = free_port("127.0.0.1")
    for index in (0, 1):
        system.start_machine(index, nodes=2, port=port, resume=resume)


def wait_ready(system: System) -> None:
    def ready() -> bool:
        for index in (0, 1):
            assert system.processes[f"trainer-{index}"].poll() is None, system.log(f"trainer-{index}")[-3000:]
        return system.log("trainer-0").count("trainer ready") > system.log("trainer-0").count("trainer ended")

    wait_for(ready, START_SECONDS, "a trainer that waits for rollouts")


def exit_codes(system: System) -> list[int]:
    return [system.processes[f"trainer-{index}"].wait(END_SECONDS) for index in (0, 1)]


@pytest.mark.parametrize("index", [0, 1])
def test_sigterm_to_either_machine_ends_both_with_a_checkpoint_to_go_on_from(system: System, index: int) -> None:
    start(system)
    wait_ready(system)
    system.processes[f"trainer-{index}"].terminate()
    assert exit_codes(system) == [143, 143], system.log("trainer-0")[-2000:] + system.log("trainer-1")[-2000:]
    assert [path.name for path in (system.run_folder / "checkpoints").iterdir()] == ["1.0"]
    start(system)
    wait_ready(system)
    system.processes[f"trainer-{1 - index}"].terminate()
    assert exit_codes(system) == [143, 143]
    assert {path.name for path in (system.run_folder / "checkpoints").iterdir()} == {"1.0", "2.0"}


def test_a_users_mistake_at_rank_0_is_a_failure_of_the_other(system: System) -> None:
    (system.run_folder / "checkpoints" / "1.0").mkdir(parents=True)
    start(system, resume=False)
    assert exit_codes(system) == [2, 1]
    assert "resume it with --resume" in system.log("trainer-0")
    assert "Traceback" not in system.log("trainer-0") + system.log("trainer-1")


def test_the_other_machine_fails_when_rank_0_is_killed(system: System) -> None:
    start(system)
    wait_ready(system)
    (rank,) = psutil.Process(system.processes["trainer-0"].pid).children()
    rank.send_signal(signal.SIGKILL)
    assert exit_codes(system) == [137, 1]
    assert "rank 0 is gone" in system.log("trainer-1")
    assert "Traceback" not in system.log("trainer-1")
