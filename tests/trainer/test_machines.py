"""The trainer on two machines: two launchers with one real rank each, over gloo. However it ends,
none says "done".

A Job makes no pod again that ended with 0, and then the others would wait for it for ever. One run
folder for all: each test goes on from the checkpoint of the one before, the one that leaves none
comes last but one, and each can run alone.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from rollcast.local.ports import free_port
from testkit.forked_programs import ForkedPrograms
from testkit.system.harness import System, wait_for
from testkit.tiny_model import make_tiny_model

pytestmark = pytest.mark.timeout(900)

START_SECONDS = 240.0
END_SECONDS = 60.0


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, trainers: ForkedPrograms) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("machines")
    make_tiny_model(folder / "model", max_length=128)
    settings = {
        "run": "machines",
        "model": {"path": str(folder / "model"), "dtype": "float32", "max_length": 128},
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 2, "size": 100},
            "evaluation": {"num_prompts": 4},
        },
        "recipe": {
            "length_control": {"kind": "none"},
            "prompts_per_step": 4,
            "max_prompt_tokens": 32,
        }
        | {"max_completion_tokens": 64},
        "trainer": {"threads": 1, "http_port": free_port("127.0.0.1")},
    }
    with System(folder, settings) as system:
        yield system


def start(system: System, trainers: ForkedPrograms, *, resume: bool = True) -> None:
    """As an Indexed Job starts them: one rank each, the first one's store on a port."""
    placement = [
        "--nodes=2",
        "--ranks=1",
        "--main-host=localhost",
        f"--main-port={free_port('127.0.0.1')}",
    ]
    arguments = [*placement, "--config", str(system.config), *(["--resume"] if resume else [])]
    for index in (0, 1):
        log, environment = (
            system.folder / f"trainer-{index}.log",
            {"JOB_COMPLETION_INDEX": str(index)},
        )
        launcher = trainers.start("rollcast.trainer.launch", arguments, log, environment)
        system.processes[f"trainer-{index}"] = launcher


def wait_ready(system: System, former: int) -> None:
    """`former`: length of rank 0's log before this start."""

    def ready() -> bool:
        for index in (0, 1):
            assert system.processes[f"trainer-{index}"].poll() is None, system.log(
                f"trainer-{index}"
            )[-3000:]
        return "trainer ready" in system.log("trainer-0")[former:]

    wait_for(ready, START_SECONDS, "a trainer that waits for rollouts")


@pytest.fixture
def running(system: System, trainers: ForkedPrograms) -> System:
    """Two machines that wait for rollouts; each test leaves none running."""
    former = len(system.log("trainer-0")) if (system.folder / "trainer-0.log").exists() else 0
    start(system, trainers)
    wait_ready(system, former)
    return system


def exit_codes(system: System) -> list[int]:
    return [system.processes[f"trainer-{index}"].wait(END_SECONDS) for index in (0, 1)]


def checkpoints(system: System) -> set[str]:
    return {path.name for path in (system.run_folder / "checkpoints").glob("*")}


@pytest.mark.parametrize("index", [1, 0])
def test_sigterm_to_either_machine_ends_both_with_a_checkpoint_to_go_on_from(
    running: System, index: int
) -> None:
    before = checkpoints(running)
    running.processes[f"trainer-{index}"].terminate()
    assert exit_codes(running) == [143, 143], (
        running.log("trainer-0")[-2000:] + running.log("trainer-1")[-2000:]
    )
    assert checkpoints(running) - before == {f"{len(before) + 1}.0"}


def test_the_other_machine_fails_when_rank_0_is_killed(running: System) -> None:
    """After a SIGTERM to either: it goes on from the checkpoint of the second."""
    (rank,) = psutil.Process(running.processes["trainer-0"].pid).children()
    rank.send_signal(signal.SIGKILL)
    assert exit_codes(running) == [137, 1]
    assert "rank 0 is gone" in running.log("trainer-1")
    assert "Traceback" not in running.log("trainer-1")


def test_a_rank_lost_in_a_collective_is_a_sentence_at_the_other(running: System) -> None:
    """Rank 1 stops answering, rank 0 begins a checkpoint with it, and it is killed."""
    (rank,) = psutil.Process(running.processes["trainer-1"].pid).children()
    rank.send_signal(signal.SIGSTOP)
    running.processes["trainer-0"].terminate()
    time.sleep(3.0)
    rank.send_signal(signal.SIGKILL)
    assert exit_codes(running) == [1, 137]
    assert "rank 1 killed by SIGKILL" in running.log("trainer-1")
    assert "this rank follows rank 0" in running.log("trainer-1")
    assert "Traceback" not in running.log("trainer-0")
    assert "error: another trainer rank ended or does not answer (" in running.log("trainer-0")


def test_a_users_mistake_at_rank_0_is_a_failure_of_the_other(
    system: System, trainers: ForkedPrograms
) -> None:
    (system.run_folder / "checkpoints" / "1.0").mkdir(parents=True, exist_ok=True)
    start(system, trainers, resume=False)
    assert exit_codes(system) == [2, 1]
    assert "resume it with --resume" in system.log("trainer-0")
    assert "Traceback" not in system.log("trainer-0") + system.log("trainer-1")
