"""Environments of the user's own, in real processes: TRL's convention, the profiles, and what they
must survive.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from rollcast.config.environments.settings import Profile
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.python_processes.live import PythonEnvironment
from rollcast.environments.python_processes.processes import EnvironmentProcesses
from rollcast.tasks.sandbox.protections import missing
from testkit.class_environments import environments, eventually

CONTAINED = pytest.mark.protections
EVERY_PROFILE: list[object] = [
    pytest.param("compute", marks=CONTAINED),
    pytest.param("folder", marks=CONTAINED),
    "trusted",
]

COUNTER = '''
class CounterEnvironment:
    """As TRL's documentation writes environments."""

    def __init__(self):
        self.value = 0

    def reset(self, **kwargs) -> str | None:
        self.value = kwargs.get("start", 0)
        return f" It starts at {self.value}."

    def increment(self, step: int) -> int:
        """
        Increment the internal counter.

        Args:
            step: Value to add to the counter.

        Returns:
            The updated counter value.
        """
        self.value += step
        return self.value

    async def double(self) -> int:
        """Double the counter.

        Returns:
            The updated counter value.
        """
        import asyncio
        await asyncio.sleep(0)
        self.value *= 2
        return self.value

    def get_reward(self) -> float:
        return 1.0 if self.value == 42 else 0.0
'''

ODD = '''
import os, signal, socket, subprocess, sys, time

class Odd:
    def reset(self, do="", **row):
        if do == "raise":
            raise RuntimeError("no room")
        if do == "number":
            return 3
        self.do = do

    def run(self, code: str) -> str:
        """Run code.

        Args:
            code: Python.
        """
        found = {}
        exec(code, globals(), found)
        return found.get("answer", "done")

    def get_reward(self):
        if self.do == "text":
            return "good"
        if self.do == "hang":
            time.sleep(600)
        return 0.5
'''


SHOUT = '''
def shout(text: str) -> str:
    """Shout.

    Args:
        text: What.
    """
    return text.upper()
'''

REACHING_OUT = (
    "open('/etc/passwd').read()",
    "open('/proc/1/environ').read()",
    "open('/tmp/rollcast-hostile', 'w').write('x')",
    "socket.socket()",
    "socket.create_connection(('127.0.0.1', 1))",
    "os.kill(os.getppid(), signal.SIGKILL)",
    "os.kill(1, 0)",
)


def fork_server_of(processes: EnvironmentProcesses) -> psutil.Process:
    assert processes._fork_server is not None
    return psutil.Process(processes._fork_server.pid)


@pytest.mark.parametrize("profile", EVERY_PROFILE)
async def test_a_class_in_the_form_of_trls_documentation(tmp_path: Path, profile: Profile) -> None:
    async with environments(tmp_path, COUNTER, "CounterEnvironment", profile) as processes:
        one = await processes.acquire()
        opening = await one.reset({"start": 20, "prompt": "Reach 42."})
        assert opening.text == " It starts at 20."
        functions = {schema["function"]["name"]: schema["function"] for schema in opening.tools}
        assert functions.keys() == {"increment", "double"}
        assert functions["increment"]["parameters"]["properties"]["step"]["type"] == "integer"
        assert functions["increment"]["description"] == "Increment the internal counter."
        assert (await one.call("increment", {"step": 1})).text == "21"
        assert await one.reward() == 0.0
        assert (await one.call("double", {})).text == "42"
        assert await one.reward() == 1.0
        wrong = await one.call("increment", {"by": 1})
        assert wrong.is_malformed
        assert "step" in wrong.text
        assert (await one.call("divide", {})).is_malformed
        assert "Error" in (await one.call("increment", {"step": "x"})).text
        await processes.release(one, is_reusable=True)
        again = await processes.acquire()
        assert (again is one) == (profile != "folder")
        assert (await again.reset({"start": 1})).text == " It starts at 1."


async def test_a_hundred_live_at_the_same_time_and_cost_little(tmp_path: Path) -> None:
    async with environments(
        tmp_path, COUNTER, "CounterEnvironment", "compute" if not missing() else "trusted"
    ) as all_:
        first = await all_.acquire()
        await first.reset({})
        ones = await asyncio.gather(*(all_.acquire() for _ in range(100)))
        await asyncio.gather(*(one.reset({"start": number}) for number, one in enumerate(ones)))
        answers = await asyncio.gather(*(one.call("increment", {"step": 1}) for one in ones))
        assert [answer.text for answer in answers] == [str(number + 1) for number in range(100)]
        own_bytes = [child.memory_full_info().uss for child in fork_server_of(all_).children()]
        assert len(own_bytes) == 101
        assert max(own_bytes) < 64 << 20


async def test_failures_are_named_and_never_a_reward(tmp_path: Path) -> None:
    async with environments(tmp_path, ODD, "Odd", call_seconds=1.0) as processes:
        for row, sentence in (
            ({"do": "raise"}, r"RuntimeError: no room .*world\.py, line 7"),
            ({"do": "number"}, "reset returned int"),
        ):
            one = await processes.acquire()
            with pytest.raises(EnvironmentFailedError, match=sentence):
                await one.reset(row)
            await processes.release(one, is_reusable=True)
        for do, sentence in (
            ("text", "a reward is a number, not str"),
            ("hang", "get_reward took longer than 1 s"),
        ):
            one = await processes.acquire()
            await one.reset({"do": do})
            with pytest.raises(EnvironmentFailedError, match=sentence):
                await one.reward()
        one = await processes.acquire()
        await one.reset({})
        assert "interrupted" in (await one.call("run", {"code": "while True: pass"})).text
        assert (await one.call("run", {"code": "answer = 'still here'"})).text == "still here"
        assert len((await one.call("run", {"code": "answer = 'x' * 10_000_000"})).text) < 300_000
        assert (
            await one.call("run", {"code": "print('to nobody'); answer = 'told'"})
        ).text == "told"
        with pytest.raises(EnvironmentFailedError, match="its process ended during call"):
            await one.call("run", {"code": "os._exit(3)"})
        assert one.has_failed


@pytest.mark.parametrize("profile", EVERY_PROFILE)
async def test_what_no_signal_interrupts_is_ended(tmp_path: Path, profile: Profile) -> None:
    async with environments(tmp_path, ODD, "Odd", profile, call_seconds=0.5) as processes:
        one = await processes.acquire()
        await one.reset({})
        stopped = (
            "os.kill(os.getpid(), signal.SIGSTOP)"
            if profile != "compute"
            else "signal.signal(14, 1); signal.pause()"
        )
        with pytest.raises(EnvironmentFailedError, match=r"could not be interrupted after 0\.5 s"):
            await one.call("run", {"code": stopped})
        await processes.release(one, is_reusable=False)
        await eventually(lambda: not fork_server_of(processes).children(recursive=True))


async def test_a_frozen_environment_holds_up_no_close_by_a_request_that_it_never_reads(
    tmp_path: Path,
) -> None:
    async with environments(tmp_path, ODD, "Odd", call_seconds=0.1) as processes:
        one = await processes.acquire()
        await one.reset({})
        for process in fork_server_of(processes).children(recursive=True):
            process.suspend()
        with pytest.raises(EnvironmentFailedError, match=r"could not be interrupted after 0\.1 s"):
            await one.call("run", {"code": "#" * (8 << 20)})
        async with asyncio.timeout(10.0):
            await processes.release(one, is_reusable=False)
        await eventually(lambda: not fork_server_of(processes).children(recursive=True))


@CONTAINED
@pytest.mark.parametrize("profile", ["compute", "folder"])
async def test_a_contained_environment_reaches_nothing_outside(
    tmp_path: Path, profile: Profile
) -> None:
    async with environments(tmp_path, ODD, "Odd", profile) as processes:
        one = await processes.acquire()
        await one.reset({})
        for code in REACHING_OUT:
            assert "Error" in (await one.call("run", {"code": code})).text, code
        assert (await one.call("run", {"code": "answer = 'lives'"})).text == "lives"


@CONTAINED
async def test_compute_starts_no_process_and_writes_no_file(tmp_path: Path) -> None:
    async with environments(tmp_path, ODD, "Odd", "compute") as processes:
        one = await processes.acquire()
        await one.reset({})
        for code in (
            "os.fork()",
            "subprocess.run(['/bin/true'])",
            "open('x', 'w')",
            "import threading; threading.Thread(target=id).start()",
        ):
            assert "Error" in (await one.call("run", {"code": code})).text


@CONTAINED
async def test_a_private_folder_is_writable_and_gone_after_its_episode(tmp_path: Path) -> None:
    async with environments(tmp_path, ODD, "Odd", "folder") as processes:
        one = await processes.acquire()
        await one.reset({})
        folder = (await one.call("run", {"code": "answer = os.getcwd()"})).text
        assert (await one.call("run", {"code": "open('a.txt', 'w').write('kept')"})).text == "done"
        shell = (
            "answer = subprocess.run('cat a.txt; ls ~', shell=True, capture_output=True, "
            "text=True).stdout"
        )
        assert (await one.call("run", {"code": shell})).text == "kepta.txt\n"
        leaked = "subprocess.Popen(['/bin/sh', '-c', 'setsid sleep 1000 & sleep 1000'])"
        assert (await one.call("run", {"code": leaked})).text == "done"
        await processes.release(one, is_reusable=True)
        await eventually(
            lambda: (
                not fork_server_of(processes).children(recursive=True)
                and not os.path.exists(folder)
            )
        )


@CONTAINED
async def test_too_many_processes_are_ended_and_said(tmp_path: Path) -> None:
    async with environments(tmp_path, ODD, "Odd", "folder") as processes:
        one = await processes.acquire()
        await one.reset({})
        bomb = "[subprocess.Popen(['/bin/sleep', '1000']) for _ in range(80)]; time.sleep(15)"
        with pytest.raises(EnvironmentFailedError, match="processes, and 64 are allowed"):
            await one.call("run", {"code": bomb})
        await eventually(lambda: not fork_server_of(processes).children(recursive=True))


async def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    async with environments(tmp_path, "import does_not_exist\n", "Odd") as processes:
        with pytest.raises(EnvironmentFailedError, match=r"does_not_exist.*world\.py, line 1"):
            await processes.acquire()


async def test_a_tool_without_a_description_is_refused(tmp_path: Path) -> None:
    source = "class Odd:\n    def look(self, where):\n        return 1\n"
    async with environments(tmp_path, source, "Odd") as processes:
        with pytest.raises(
            EnvironmentFailedError, match="the tool look cannot be described to a model"
        ):
            await processes.acquire()


@CONTAINED
async def test_shipped_tools_and_functions_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SHOUT)
    settings = ToolSet(name="mine", tools=("calculator", "python", f"{tmp_path}/mine.py:shout"))
    processes = EnvironmentProcesses(settings)
    try:
        one: PythonEnvironment = await processes.acquire()
        opening = await one.reset({})
        assert [schema["function"]["name"] for schema in opening.tools] == [
            "calculator",
            "python",
            "shout",
        ]
        assert (await one.call("calculator", {"expression": "6 * 7"})).text == "42"
        assert (await one.call("python", {"code": "print(6 * 7)"})).text == "42"
        assert (await one.call("shout", {"text": "hi"})).text == "HI"
        assert await one.reward() is None
    finally:
        await processes.close()


async def test_the_end_of_the_generator_ends_everything(tmp_path: Path) -> None:
    async with environments(tmp_path, ODD, "Odd", "trusted") as processes:
        one = await processes.acquire()
        await one.reset({})
        await one.call(
            "run", {"code": "subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)"}
        )
        started = fork_server_of(processes).children(recursive=True)
        assert any("sleep" in process.name() for process in started)
    await eventually(lambda: not any(process.is_running() for process in started))


SLOW = '''
import asyncio, time
time.sleep(2)

class Slow:
    value = 0

    def reset(self):
        pass

    async def add(self) -> int:
        """Add slowly."""
        await asyncio.sleep(1.0)
        self.value += 1
        return self.value

    async def look(self) -> int:
        """Look, after some time."""
        await asyncio.sleep(0.4)
        return self.value
'''

UNSEEN = (
    "os.chown(target, 1, 1)",
    "os.setxattr(target, 'user.x', b'1')",
    "os.memfd_create('x')",
    "import ctypes; assert ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0, 'refused'",
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
)


async def test_a_cancelled_wait_hands_no_other_file_to_the_fork_server(tmp_path: Path) -> None:
    async with environments(tmp_path, SLOW, "Slow") as processes:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await processes.acquire()
        files = [
            (tmp_path / f"private{number}").open("w") for number in range(8)
        ]  # take the numbers that are free
        one = await processes.acquire()
        await one.reset({})
        started = fork_server_of(processes)
        await processes.release(one, is_reusable=False)
        again = await processes.acquire()
        await again.reset({})
        assert fork_server_of(processes).pid == started.pid
        for file in files:
            file.close()


async def test_an_overdue_async_call_does_not_go_on(tmp_path: Path) -> None:
    async with environments(tmp_path, SLOW, "Slow", call_seconds=0.8) as processes:
        one = await processes.acquire()
        await one.reset({})
        assert "interrupted" in (await one.call("add", {})).text
        assert (await one.call("look", {})).text == "0"


@CONTAINED
async def test_a_folder_has_no_way_around_its_limits(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    async with environments(tmp_path, ODD, "Odd", "folder") as processes:
        one = await processes.acquire()
        await one.reset({})
        for code in UNSEEN:
            assert (
                "Error"
                in (await one.call("run", {"code": f"target = {str(target)!r}; {code}"})).text
            ), code
        assert (await one.call("run", {"code": "socket.socketpair()"})).text == "done"


@CONTAINED
@pytest.mark.parametrize(
    "removed", ["", "os.unlink(f'f{n}'); "], ids=["files", "files without a name"]
)
async def test_too_much_written_is_ended_and_said(tmp_path: Path, removed: str) -> None:
    fill = f"for n in range(5): one = os.open(f'f{{n}}', os.O_CREAT | os.O_RDWR); {removed}"
    fill += "os.posix_fallocate(one, 0, 240 << 20)"
    async with environments(tmp_path, ODD, "Odd", "folder") as processes:
        one = await processes.acquire()
        await one.reset({})
        with pytest.raises(EnvironmentFailedError, match="more than the 1024 MiB that are allowed"):
            await one.call("run", {"code": f"{fill}\ntime.sleep(15)"})
