"""Programs that never ask for a completion: each ends with a reason, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollcast.environments.harness.program import HarnessProgram, absolute, inherited_variables
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.connections.certificates import make_certificates
from testkit.generator.episode_tasks import WORLD, episode_task
from testkit.generator.harness_endpoint import served_endpoint
from testkit.generator.scripted_engine import ScriptedEngine
from tests.generator.claiming import V1

pytestmark = pytest.mark.asyncio


async def ended(code: str, **settings: Any) -> tuple[Rollout, float]:
    """A program's episode, and the seconds that it took."""
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    given = {"command": [sys.executable, "-c", code], "restarts": 1, **settings}
    async with served_endpoint(engine, given) as endpoint:
        sampler = endpoint.sampler(episode_task(1, 1, LengthBudget(max_tokens=100)))
        began = time.monotonic()
        async with asyncio.timeout(120):
            await sampler.run()
        assert sampler.verdict is not None
        assert sampler.verdict.status is GradingStatus.ERROR
        assert endpoint.count(episode_metrics.EPISODES_WAITING, environment=WORLD) == 0
        return sampler.rollout(), time.monotonic() - began


@pytest.mark.parametrize(
    ("code", "settings", "reason"),
    [
        ("raise ValueError('no key')", {}, "ended with exit code 1: .*ValueError: no key"),
        ("import os; os.kill(os.getpid(), 9)", {}, "ended with exit code 137: it printed nothing"),
        ("print('nothing to do')", {}, "ended without a request to the model: nothing to do"),
        ("import time; time.sleep(600)", {"reset_seconds": 6}, "made no request within 6 seconds"),
        ("print('x' * 10_000_000); exit(3)", {}, "ended with exit code 3: x+$"),
    ],
    ids=["raises", "killed", "never-asks", "hangs", "prints-much"],
)
async def test_a_program_without_a_request_is_a_failed_environment(
    code: str, settings: dict[str, Any], reason: str
) -> None:
    rollout, _ = await ended(code, **settings)
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert rollout.episode.restarts == 1
    assert re.search(reason, rollout.episode.reason), rollout.episode.reason
    assert len(rollout.episode.reason) <= 500
    assert not rollout.num_tokens


async def test_a_program_that_cannot_be_started() -> None:
    rollout, _ = await ended("", command=["./no-such-agent"], restarts=0)
    assert rollout.episode is not None
    assert "no-such-agent cannot be started" in rollout.episode.reason


async def test_a_program_verifies_the_certificate_of_the_endpoint(tmp_path: Path) -> None:
    code = (
        "import openai, os; client = openai.OpenAI(max_retries=0); messages = [{'role': 'user', "
        "'content': 'x'}]; "
        "client.chat.completions.create(model=os.environ['ROLLCAST_MODEL'], messages=messages); "
        "import httpx; headers = {'authorization': 'Bearer ' + client.api_key}; "
        "httpx.post(os.environ['ROLLCAST_REWARD_URL'], json={'reward': 1}, "
        "headers=headers).raise_for_status()"
    )
    engine: Any = ScriptedEngine(lambda request: len(request.token_ids) + 6)
    await engine.apply(V1)
    given = {"command": [sys.executable, "-c", code], "reset_seconds": 300, "restarts": 0}
    async with served_endpoint(engine, given, tls=make_certificates(tmp_path / "tls")) as endpoint:
        assert endpoint.sessions.url.startswith("https://")
        sampler = endpoint.sampler(episode_task(1, 1, LengthBudget(max_tokens=100)))
        playing = asyncio.create_task(sampler.run())
        async with asyncio.timeout(400):
            while not playing.done():
                await engine.advance(1)
        await playing
    episode = sampler.rollout().episode
    assert episode is not None
    assert episode.end is not EpisodeEnd.FAILED, episode.reason
    assert len(episode.turns) == 1
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 1.0


async def test_a_full_disk_fails_the_episode_and_not_the_generator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rollcast.environments.harness.folder.tempfile.mkdtemp", full)
    rollout, _ = await ended("pass", restarts=0)
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert "No space left on device" in rollout.episode.reason


async def test_what_a_program_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = (
        "import os, subprocess; left = subprocess.Popen(['sleep', '600'], start_new_session=True); "
        f"open({str(note)!r}, 'w').write(f'{{left.pid}} {{os.getcwd()}}')"
    )
    program = await HarnessProgram.start([sys.executable, "-c", code], {})
    assert await program.wait(60)
    assert not program.how_it_failed
    pid, folder = note.read_text().split()
    assert not psutil.pid_exists(int(pid))
    await program.end()
    assert not await asyncio.to_thread(os.path.exists, folder)


async def test_a_program_is_ended_in_the_middle(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = (
        "import os, signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    )
    program = await HarnessProgram.start([sys.executable, "-c", code], {})
    async with asyncio.timeout(60):
        while not note.exists() or not note.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not program.has_ended
    await program.end()
    assert not psutil.pid_exists(int(note.read_text()))
    assert program.has_ended


async def test_a_program_sees_none_of_the_runs_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ROLLCAST_REDIS_PASSWORD", "HF_TOKEN", "OPENAI_API_KEY", "REDIS_URL"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("NO_PROXY", "example.org")
    assert "secret" not in inherited_variables().values()
    assert inherited_variables()["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").touch()
    command = absolute(["python", "agent.py", "--verbose", "other.py"])
    assert command[0].startswith("/")
    assert command[1:] == [str(tmp_path / "agent.py"), "--verbose", "other.py"]


async def test_a_program_ends_with_the_generator(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    harness = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    generator = (
        "import asyncio, sys\n"
        "from rollcast.environments.harness.program import HarnessProgram\n"
        "async def run():\n"
        f"    await HarnessProgram.start([sys.executable, '-c', {harness!r}], {{}})\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(run())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", generator)
    async with asyncio.timeout(60):
        while not note.exists() or not note.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        while psutil.pid_exists(int(note.read_text())):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
