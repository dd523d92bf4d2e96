"""The process in which verifiers runs, by programs in its place.

Tasksets: test_real_verifiers.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.verifiers.__main__ import main
from rollcast.environments.verifiers.adapter import answer_digest, answers, outcome
from rollcast.environments.verifiers.helper import VerifiersHelper
from tests.environments.verifiers_run import (
    DESCRIBED,
    ROW,
    run_file,
    settings,
    why_it_does_not_start,
)


def program(folder: Path, code: str) -> Path:
    """An interpreter that runs this in place of the adapter, its socket as standard input."""
    file = folder / "python"
    file.write_text(
        f"#!{sys.executable}\nimport socket, sys, time\nit = socket.socket(fileno=0)\n{code}\n"
    )
    file.chmod(0o755)
    return file


async def test_a_python_without_verifiers() -> None:
    assert await why_it_does_not_start(sys.executable) == (
        f"interpreter: {sys.executable} has no verifiers; install verifiers==0.4.0 there"
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("sys.exit('no memory')", "ends before the taskset is loaded (no memory)"),
        ("it.sendall(b'\\xff\\xff\\xff\\xff')", "sent a message of 4294967295 bytes"),
        ("it.sendall(b'\\0\\0\\0\\1x')", "sent a message that is not JSON"),
        ("time.sleep(600)", "does not load the taskset within 2 s"),
    ],
    ids=["ends", "sends-much", "sends-no-json", "hangs"],
)
async def test_a_process_that_is_never_ready(code: str, reason: str, tmp_path: Path) -> None:
    seconds = 2 if "sleep" in code else 60
    said = await why_it_does_not_start(program(tmp_path, code), reset_seconds=seconds)
    assert said.endswith(reason)


async def test_a_process_that_ends_fails_its_rollouts_and_is_started_again(tmp_path: Path) -> None:
    ready = "it.recv(9999); it.sendall(b'\\0\\0\\0\\2{}'); it.recv(9999)"
    helper = VerifiersHelper(
        settings(program(tmp_path, f"{ready}; sys.exit('out of memory')"), reset_seconds=60), {}
    )
    try:
        for _ in range(2):
            rollout = await helper.start(ROW, DESCRIBED, {})
            assert await rollout.wait(60)
            assert rollout.how_it_failed == "failed in verifiers"
            assert rollout.last_lines == "its process ended: out of memory"
            assert rollout.trace() is None
    finally:
        await helper.close()


async def test_closing_ends_the_process_and_its_rollouts(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))\nit.recv(9999); "
        f"it.sendall(b'\\0\\0\\0\\2{{}}')\n"
    )
    helper = VerifiersHelper(
        settings(program(tmp_path, f"{code}time.sleep(600)"), reset_seconds=60), {}
    )
    rollout = await helper.start(ROW, DESCRIBED, {})
    await helper.close()
    assert rollout.has_ended
    assert not psutil.pid_exists(int(note.read_text()))


async def test_a_row_that_is_none_of_the_taskset() -> None:
    with pytest.raises(
        EnvironmentFailedError, match="its row has no field `task`; write the data set by"
    ):
        await VerifiersHelper(settings(sys.executable), {}).start(
            '{"prompt": "what?"}', DESCRIBED, {}
        )


def node(
    parent: int | None, content: str | None, *, sampled: bool = True, calls: Any = None
) -> Any:
    message = SimpleNamespace(content=content, tool_calls=calls)
    return SimpleNamespace(parent=parent, sampled=sampled, message=message)


def test_the_answers_of_a_trace() -> None:
    look = SimpleNamespace(id="call00000", name="look", arguments="{}")
    nodes = [
        node(None, "what?", sampled=False),
        node(0, None, calls=[look]),
        node(1, "a door", sampled=False),
        node(2, "it is a door"),
        node(1, "a summary"),
    ]
    branches = [
        SimpleNamespace(trainable=True, nodes=nodes[:4]),
        SimpleNamespace(trainable=False, nodes=[nodes[0], nodes[1], nodes[4]]),
    ]
    assert answers(SimpleNamespace(nodes=nodes, branches=branches)) == [
        [answer_digest("", [("call00000", "look", "{}")]), None, True],
        [answer_digest("it is a door", []), 0, True],
        [answer_digest("a summary", []), 0, False],
    ]


def test_an_outcome_has_the_numbers_of_the_taskset() -> None:
    trace = SimpleNamespace(
        stop_condition="",
        rewards={"right": 1.0},
        reward=1.0,
        metrics={"rooms": 2.0, "asks": None},
        nodes=[],
        branches=[],
    )
    assert outcome(SimpleNamespace(ok=True, traces=[trace]))["metrics"] == {"rooms": 2.0}


def test_an_episode_without_a_reward_has_a_reason() -> None:
    error = SimpleNamespace(type="TaskError", message="no\nidea")
    failed = SimpleNamespace(ok=False, errors=[], traces=[SimpleNamespace(errors=[error])])
    assert outcome(failed) == {"failed": "TaskError: no idea"}
    several = SimpleNamespace(ok=True, errors=[], traces=[None, None])
    assert "played 2 agents" in outcome(several)["unusable"]
    late = SimpleNamespace(stop_condition="scoring_timeout", rewards={})
    assert outcome(SimpleNamespace(ok=True, traces=[late])) == {
        "failed": "no reward was computed (scoring_timeout)"
    }


def test_a_data_set_of_an_environment_that_cannot_be_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: ")
    assert main([run_file(tmp_path, "/no/such/python"), "world"]) == 1
    assert main([run_file(tmp_path, sys.executable), "room"]) == 1
    assert main([run_file(tmp_path, sys.executable), "world"]) == 1
    missing, unknown, package = capsys.readouterr().err.splitlines()
    assert missing.startswith("interpreter = /no/such/python: cannot be started")
    assert unknown.startswith("NAME = room: is not an environment of kind verifiers")
    assert unknown.endswith("(world); correct it")
    assert package == "taskset = agents: has no verifiers; install verifiers==0.4.0 there"
