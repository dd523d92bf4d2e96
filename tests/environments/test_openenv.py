"""An interpreter in which no client of OpenEnv runs.

Real servers and clients: test_real_openenv.py.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.of_run import EnvironmentsOfRun
from rollcast.environments.openenv.processes import OpenEnvSession
from tests.environments.openenv_run import CLOSED_PORT, environments


async def test_an_interpreter_that_does_not_exist(tmp_path: Path) -> None:
    async with environments(CLOSED_PORT, tmp_path / "python") as made:
        with pytest.raises(
            EnvironmentFailedError, match=r"cannot be started .*; name the Python"
        ) as failed:
            await made.acquire("echo")
    assert str(tmp_path / "python") in str(failed.value)


async def test_an_interpreter_without_openenv() -> None:
    async with environments(CLOSED_PORT, Path(sys.executable)) as made:
        with pytest.raises(
            EnvironmentFailedError, match=r"cannot import openenv .*; install openenv"
        ):
            await made.acquire("echo")


async def test_an_adapter_that_hangs_is_replaced(tmp_path: Path) -> None:
    """In place of the adapter runs a program that says that it is ready, and is frozen."""
    interpreter = tmp_path / "python"
    interpreter.write_text(
        f"#!{sys.executable}\nimport os, signal, socket, sys\n"
        "control = socket.socket(fileno=int(sys.argv[3]))\n"
        "control.send(b'{}')\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    interpreter.chmod(0o755)
    async with environments(CLOSED_PORT, interpreter, reset_seconds=0.1) as made:
        session = await made.acquire("echo")
        assert isinstance(session, OpenEnvSession)
        with pytest.raises(EnvironmentFailedError, match="reset took longer than"):
            await session.reset({})
        await made.release(session, is_reusable=False)
        assert session.adapter.process.poll() == -signal.SIGKILL
        other = await made.acquire("echo")
        assert isinstance(other, OpenEnvSession)
        assert other.adapter is not session.adapter
        with pytest.raises(EnvironmentFailedError, match=r"takes no connection \(for 0.1 s"):
            await fill_socket(made)
        other.adapter.process.kill()


async def test_more_episodes_begin_together_than_the_adapters_socket_holds(tmp_path: Path) -> None:
    """In place of the adapter runs a program that is busy for a second."""
    interpreter = tmp_path / "python"
    interpreter.write_text(
        f"#!{sys.executable}\nimport socket, sys, time\n"
        "control = socket.socket(fileno=int(sys.argv[3]))\n"
        "control.send(b'{}')\n"
        "time.sleep(1)\n"
        "while socket.recv_fds(control, 16, 1)[0]: pass\n"
    )
    interpreter.chmod(0o755)
    async with environments(CLOSED_PORT, interpreter) as made:
        sessions = await asyncio.gather(*(made.acquire("echo") for _ in range(400)))
        assert len(set(sessions)) == 400


async def fill_socket(made: EnvironmentsOfRun) -> None:
    """Ask for connections that a frozen adapter does not read; the event loop must not wait."""
    while True:
        await made.acquire("echo")
