"""Episodes of a task in real containers and as pods, as the generator starts them; the endpoint is
a script.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.harbor import HarborEnvironment
from rollcast.environments.containers.engines import find_engine
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.harbor.grading import prepare
from rollcast.environments.harbor.images import make_image, task_image
from rollcast.environments.harbor.play import EXIT_NO_VERDICT
from rollcast.environments.harbor.task import read_task
from rollcast.environments.kinds.harbor import missing
from rollcast.environments.kinds.kind import Surroundings, find_kind
from testkit.containers import IMAGE, START_SECONDS, runtime
from testkit.harbor_tasks import TASK_FILE, TESTS, write_task
from tests.environments.engines_under_test import EngineUnderTest

if TYPE_CHECKING:
    from testkit.pod_server import PodServer


class ScriptedEndpoint(ThreadingHTTPServer):
    """Answers each request with the next command, and then without a call."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.commands: Sequence[str] = ()
        self.rewards: list[float] = []
        self.messages: list[dict[str, Any]] = []

    @property
    def variables(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.server_port}"
        return {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "token",
            "ROLLCAST_MODEL": "model",
            "ROLLCAST_REWARD_URL": f"{url}/reward",
        }


class ScriptedHandler(BaseHTTPRequestHandler):
    server: ScriptedEndpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.headers["authorization"] == "Bearer token"
        answer: dict[str, Any] = {}
        if self.path == "/reward":
            self.server.rewards.append(body["reward"])
        else:
            self.server.messages = body["messages"]
            num_calls = sum(message["role"] == "tool" for message in body["messages"])
            message: dict[str, Any] = {"role": "assistant", "content": "done"}
            if num_calls < len(self.server.commands):
                arguments = json.dumps({"command": self.server.commands[num_calls]})
                function = {"name": "shell", "arguments": arguments}
                message["tool_calls"] = [{"id": "1", "type": "function", "function": function}]
            answer = {"choices": [{"message": message}]}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def harbor_environment(engine: EngineUnderTest, tasks: Path, **settings: Any) -> HarborEnvironment:
    if engine.name == "kubernetes":
        give_ready_image(tasks / "hello")
    largest = {"image": None, "memory_gib": 0.25, "disk_gib": 0.125}
    container = engine.settings | largest
    environment = HarborEnvironment.model_validate(
        {"name": "hello", "tasks": tasks, "container": container, **settings}
    )
    assert list(missing(environment, "box")) == []
    return environment


def give_ready_image(folder: Path) -> None:
    """Build a task's image as whoever pushes it to a registry does."""
    task = read_task(folder)
    if task.file.environment.docker_image is None:
        assert list(make_image(ContainerSettings(runtime=runtime()), task, "here")) == []
        named = f'[environment]\ndocker_image = "{task_image(task)}"\n'
        text = (folder / "task.toml").read_text()
        (folder / "task.toml").write_text(text.replace("[environment]\n", named))


def start_playing(
    environment: HarborEnvironment, endpoint: ScriptedEndpoint, *commands: str
) -> subprocess.Popen[str]:
    endpoint.commands = commands
    order = {
        "environment": environment.model_dump(mode="json"),
        "start_seconds": START_SECONDS,
    }
    program = subprocess.Popen(
        [sys.executable, "-m", "rollcast.environments.harbor.play", json.dumps(order)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | endpoint.variables,
    )
    assert program.stdin is not None
    program.stdin.write(json.dumps({"prompt": "Write it.", "task": "hello"}))
    program.stdin.close()
    program.stdin = None
    return program


def play(
    environment: HarborEnvironment, endpoint: ScriptedEndpoint, *commands: str
) -> tuple[int, str]:
    program = start_playing(environment, endpoint, *commands)
    output, _ = program.communicate(timeout=START_SECONDS)
    return program.returncode, output


def wait_for_a_turn(endpoint: ScriptedEndpoint) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not endpoint.messages and time.monotonic() < deadline:
        time.sleep(0.1)


@pytest.mark.parametrize("mode", ["shared", "separate"])
def test_the_tests_reward_what_the_agent_did(
    mode: str, engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    before = engine.names()
    write_task(tmp_path / "hello", mode=mode)
    environment = harbor_environment(engine, tmp_path)
    assert play(environment, endpoint, "pwd; cat data.txt", "echo hello > hello.txt") == (0, "")
    assert endpoint.messages[0]["content"] == "Write it."
    assert endpoint.messages[2]["content"] == "/app\ndata"
    assert play(environment, endpoint, "echo $PLACE; ls /tests; echo no > hello.txt")[0] == 0
    assert "Rome" in endpoint.messages[2]["content"]
    assert "No such file" in endpoint.messages[2]["content"], "the agent sees no tests"
    assert endpoint.rewards == [1.0, 0.0]
    assert engine.wait_for_new(before, 0)


def test_programs_that_the_agent_spoils_do_not_grade_it_in_a_fresh_container(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello", mode="separate")
    spoil = "echo no > hello.txt; rm /bin/grep; echo '#!/bin/sh' > /bin/grep; chmod +x /bin/grep"
    assert play(harbor_environment(engine, tmp_path), endpoint, spoil) == (0, "")
    assert endpoint.rewards == [0.0]


def test_an_agents_exit_code_decides_whose_fault_it_was(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello")
    agent = ("sh", "-c", "$ROLLCAST_CONTAINER sh -c 'echo hello > hello.txt'; exit 7")
    environment = harbor_environment(engine, tmp_path, command=agent)
    assert play(environment, endpoint)[0] == 7
    assert endpoint.rewards == []
    environment = harbor_environment(engine, tmp_path, command=agent, model_exit_codes=(7,))
    assert play(environment, endpoint)[0] == 7
    assert endpoint.rewards == [1.0]


def test_an_agent_whose_time_is_over_is_graded_by_what_is_there(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    short = TASK_FILE.replace("[agent]\ntimeout_sec = 60.0", "[agent]\ntimeout_sec = 5.0")
    write_task(tmp_path / "hello", short)
    agent = ("sh", "-c", "$ROLLCAST_CONTAINER sh -c 'echo hello > hello.txt'; sleep 1000")
    assert play(harbor_environment(engine, tmp_path, command=agent), endpoint)[0] == 0
    assert endpoint.rewards == [1.0]


@pytest.mark.parametrize(
    ("tests", "sentence"),
    [
        ("#!/bin/sh\nexit 3\n", "ended with exit code 3 and wrote no reward"),
        ("#!/bin/sh\necho x > /logs/verifier/reward.txt\n", "without a reward"),
        ("#!/bin/sh\nmkdir /logs/verifier/reward.txt\n", "is no file"),
        ("#!/bin/sh\nkill -9 -1; kill -9 $$\n", "wrote no reward"),
    ],
)
def test_tests_without_a_reward_give_the_lowest(
    tests: str, sentence: str, engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    folder = write_task(tmp_path / "hello")
    (folder / "tests" / "test.sh").write_text(tests)
    code, output = play(harbor_environment(engine, tmp_path), endpoint)
    assert code == 0
    assert sentence in output
    assert endpoint.rewards == [0.0]


def test_tests_that_do_not_end_give_the_lowest(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    short = TASK_FILE.replace("[verifier]\ntimeout_sec = 60.0", "[verifier]\ntimeout_sec = 3.0")
    folder = write_task(tmp_path / "hello", short)
    (folder / "tests" / "test.sh").write_text("#!/bin/sh\nsleep 1000\n")
    assert play(harbor_environment(engine, tmp_path), endpoint)[0] == 0
    assert endpoint.rewards == [0.0]


WRITE_REWARD = "echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json"
ESCAPES = {
    "a reward that it wrote": WRITE_REWARD,
    "a reward that it goes on writing": (
        f"(while :; do {WRITE_REWARD}; done) > /dev/null 2>&1 & sleep 1"
    ),
    "a link in the reward's place": "busybox ln -s /etc /logs/verifier/reward.json",
    "a folder in the reward's place": "mkdir -p /logs/verifier/reward.txt",
    "no folder of logs": "rm -rf /logs; touch /logs",
    "tests of its own": "mkdir /tests; echo 'exit 0' > /tests/test.sh",
    "a file in the tests' place": "touch /tests",
    "nothing left": "rm -rf /app",
    "no shell": "rm /bin/sh",
    "a shell that may not be started": "busybox chmod 0 /bin/sh",
    "a shell that is no program": "rm /bin/sh; echo x > /bin/sh; chmod +x /bin/sh",
    "a file in the place of its folder": "cd /; rm -rf /app; touch /app",
    "a sleep that writes a reward": (
        f"rm /bin/sleep; echo '#!/bin/sh' > /bin/sleep; chmod +x /bin/sleep; "
        f"echo 'while :; do {WRITE_REWARD}; done' >> /bin/sleep"
    ),
}
"""What an agent may do in place of its task."""


@pytest.mark.parametrize("mode", ["shared", "separate"])
@pytest.mark.parametrize("escape", ESCAPES)
def test_an_agent_neither_earns_nor_escapes_by_what_it_does_to_its_container(
    escape: str, mode: str, engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    folder = write_task(tmp_path / "hello", mode=mode)
    (folder / "tests" / "test.sh").write_text(
        TESTS.replace("    echo 0 > /logs/verifier/reward.txt", "    exit 1")
    )
    code, output = play(harbor_environment(engine, tmp_path), endpoint, ESCAPES[escape])
    assert (code, endpoint.rewards) == (0, [0.0]), output


def test_an_artifact_cannot_spoil_the_fresh_container(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello", mode="separate")
    spoil = (
        "mkdir -p /x/bin; cp /bin/busybox /x/bin/grep; echo no > hello.txt; "
        "cd /; busybox mv /app /x/app; busybox ln -s /x/bin /app"
    )
    assert play(harbor_environment(engine, tmp_path), endpoint, spoil)[0] == 0
    assert endpoint.rewards == [0.0]


def test_what_the_agent_removed_is_not_there_in_the_fresh_container(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello", mode="separate")
    remove = "echo hello > hello.txt; rm data.txt"
    assert play(harbor_environment(engine, tmp_path), endpoint, remove) == (0, "")
    assert endpoint.rewards == [0.0], "the tests ask for data.txt"


def test_an_agent_that_fills_the_disk_gets_the_lowest_reward(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello")
    environment = harbor_environment(engine, tmp_path, reward_range=(-1.0, 1.0))
    fill = "dd if=/dev/zero of=/app/big bs=1048576 count=100; sleep 20"
    assert play(environment, endpoint, fill)[0] == 0
    assert endpoint.rewards == [-1.0]


IN_PODS = pytest.mark.parametrize("engine", ["kubernetes"], indirect=True)


@IN_PODS
def test_an_episode_that_lost_a_command_is_not_graded(
    engine: EngineUnderTest, pod_server: PodServer, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello")
    environment = harbor_environment(engine, tmp_path)
    program = start_playing(environment, endpoint, "sleep 1000", "echo hello > hello.txt")
    wait_for_a_turn(endpoint)
    deadline = time.monotonic() + START_SECONDS
    while pod_server.num_streams == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    pod_server.drop_connections()
    output, _ = program.communicate(timeout=START_SECONDS)
    assert program.returncode == EXIT_NO_VERDICT
    assert "a command was lost" in output
    assert endpoint.rewards == []
    seen = endpoint.messages[2]["content"]
    assert seen == "the command did not run to its end\n[exit code 125]"


@IN_PODS
def test_a_command_that_begins_late_does_not_run_during_the_tests(
    engine: EngineUnderTest, pod_server: PodServer, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    short = TASK_FILE.replace("[agent]\ntimeout_sec = 60.0", "[agent]\ntimeout_sec = 6.0")
    folder = write_task(tmp_path / "hello", short)
    (folder / "tests" / "test.sh").write_text(TESTS.replace("echo", "sleep 8; echo", 1))
    begun, go = tmp_path / "begun", tmp_path / "go"
    agent = (
        f"touch {begun}; while ! test -f {go}; do sleep 0.1; done; "
        "$ROLLCAST_CONTAINER sh -c 'echo hello > hello.txt'; sleep 1000"
    )
    environment = harbor_environment(engine, tmp_path, command=("sh", "-c", agent))
    program = start_playing(environment, endpoint)
    while not begun.exists():
        time.sleep(0.1)
    pod_server.delays_seconds.append(7.0)
    go.touch()
    program.communicate(timeout=START_SECONDS)
    assert program.returncode == 0
    assert endpoint.rewards == [0.0]


def test_a_failure_before_the_agent_is_no_verdict(engine: EngineUnderTest, tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "hello"))

    async def prepare_spoiled() -> None:
        pool_engine = find_engine(ContainerSettings.model_validate(engine.settings), "hello")
        container = await pool_engine.start(IMAGE, START_SECONDS)
        try:
            await container.run(["/bin/sh", "-c", "touch /logs"], 10.0)
            await prepare(container, task)
        finally:
            await container.end()
            await pool_engine.close()

    with pytest.raises(ContainerError, match="hello: mkdir") as caught:
        asyncio.run(prepare_spoiled())
    assert not isinstance(caught.value, SpoiledError)


def test_a_killed_episode_leaves_no_container(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    before = engine.names()
    write_task(tmp_path / "hello")
    program = start_playing(harbor_environment(engine, tmp_path), endpoint, "sleep 1000")
    with program:
        wait_for_a_turn(endpoint)
        assert engine.names() - before
        os.kill(program.pid, signal.SIGKILL)
    if engine.name == "kubernetes":
        assert engine.names() - before, "only the next generator, or the cluster, removes a pod"
        settings = ContainerSettings.model_validate(engine.settings)
        assert find_engine(settings, "hello").remove_abandoned() == 1
    assert engine.wait_for_new(before, 0)


def test_an_agents_command_has_a_bounded_output(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello")
    agent = ("sh", "-c", "$ROLLCAST_CONTAINER sh -c 'yes | head -c 5000000; exit 3'; echo code $?")
    code, output = play(harbor_environment(engine, tmp_path, command=agent), endpoint)
    assert code == 0
    assert len(output) < 1_100_000
    assert output.endswith("further bytes were not kept]\ncode 3\n")


def test_a_command_that_cannot_be_run_is_an_answer(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    write_task(tmp_path / "hello")
    assert play(harbor_environment(engine, tmp_path), endpoint, "x" * 300_000, "a\0b") == (0, "")
    assert "Error" in endpoint.messages[2]["content"]
    assert "Error" in endpoint.messages[4]["content"]


def test_a_health_check_is_waited_for(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    command = "test -f /tmp/ready || { touch /tmp/ready; exit 1; }"
    check = f'[environment.healthcheck]\ncommand = "{command}"\n'
    write_task(tmp_path / "hello", f"{TASK_FILE}\n{check}interval_sec = 0.1\n")
    assert play(harbor_environment(engine, tmp_path), endpoint, "ls /tmp")[0] == 0
    assert endpoint.messages[2]["content"] == "ready"
    write_task(
        tmp_path / "hello",
        f"{TASK_FILE}\n{check.replace('test -f', 'false ||')}interval_sec = 0.1\n",
    )
    code, output = play(harbor_environment(engine, tmp_path), endpoint, "ls /tmp")
    assert code == EXIT_NO_VERDICT
    assert "its health check failed 3 times" in output


@pytest.mark.asyncio
async def test_an_episode_that_the_generator_ends_leaves_no_container(
    engine: EngineUnderTest, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    before = engine.names()
    write_task(tmp_path / "hello")
    endpoint.commands = ("sleep 1000",)
    environment = harbor_environment(engine, tmp_path)
    programs = find_kind(environment).start(environment, Surroundings())
    url = endpoint.variables["OPENAI_BASE_URL"]
    described = {
        "base_url": url,
        "token": "token",
        "reward_url": endpoint.variables["ROLLCAST_REWARD_URL"],
        "model": "model",
    }
    row = json.dumps({"prompt": "Write it.", "task": "hello"})
    program = await programs.start(row, described, {})
    await asyncio.to_thread(wait_for_a_turn, endpoint)
    assert engine.names() - before
    await program.end()
    assert await asyncio.to_thread(engine.wait_for_new, before, 0)
    await programs.close()
