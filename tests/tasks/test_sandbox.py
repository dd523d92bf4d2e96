"""The sandbox's own life: verifiers that misbehave, processes that die, what it refuses, what it
hides.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from rollcast.config.bounds import LEAST_WAIT_SECONDS
from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading, Tasks
from rollcast.generator.grading import check_grading
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.sandbox import client, protections
from rollcast.tasks.sandbox.client import Sandbox, _decode
from rollcast.tasks.sandbox.cores import gradings_at_once, one_core
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade

ROOT = Path(__file__).parents[2]
RIGHT = Grade(1.0, "ok")
ADDS = json.dumps({"kind": "tests", "tests": "assert add(20, 22) == 42"})
ADD = "```python\ndef add(a, b): return a + b\n```"
NEEDS_PROTECTIONS = pytest.mark.protections


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str, **modules: str
) -> None:
    """An installed package with these modules and `entry_points.txt`."""
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    metadata = folder / "from_outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: from-outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(Grading(deadline_seconds=60.0))
    yield made
    made.close()


HOSTILE = """
import os, socket, time

def harm(completion, reference):
    if completion == "hang":
        time.sleep(600)
    if completion == "die":
        os._exit(3)
    if completion == "eat":
        return float(len("x" * (1 << 42)))
    if completion == "talk":
        print('{"reward": 1.0, "status": "ok"}')
    if completion == "nonsense":
        return 7.0
    if completion == "call":
        return float(bool(socket.socket()))
    if completion == "keep":
        return open("FOLDER/kept", "w")
    if completion == "environment":
        return float("ROLLCAST_REDIS_PASSWORD" in os.environ)
    return float(completion == "right")
"""


def test_a_hostile_verifier_costs_a_deadline_and_is_told_apart_from_a_wrong_answer(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process starts all of its gradings, as in a run: none harms the grading after it."""
    monkeypatch.setenv("ROLLCAST_REDIS_PASSWORD", "secret")
    points = (
        "[rollcast.verifiers]\nharm = hostile:harm\nabsent = nowhere:absent\nbroken = "
        "broken:broken\n"
    )
    source = HOSTILE.replace("FOLDER", str(tmp_path))
    install(tmp_path, monkeypatch, points, hostile=source, broken="raise RuntimeError('at import')")
    statuses: dict[str, Literal["wrong", "timeout", "error"]] = {
        "hang": "timeout",
        "die": "error",
        "eat": "error",
        "talk": "wrong",
        "nonsense": "error",
        "environment": "wrong",
    }
    if not protections.missing():
        statuses |= {"call": "error", "keep": "error"}
    for completion, status in statuses.items():
        limits = Limits(
            1.0,
            1.0,
            Grading().memory_mib << 20,
            2.0 if completion == "hang" else LEAST_WAIT_SECONDS,
        )
        assert sandbox.grade("harm", completion, '"x"', limits=limits) == Grade(0.0, status), (
            completion
        )
        assert grade("harm", "right", '"x"', sandbox=sandbox) == RIGHT, completion
    assert not (tmp_path / "kept").exists()
    for verifier in ("absent", "broken"):
        assert sandbox.grade(verifier, "x", '"x"') == Grade(0.0, "error")
    assert grade("harm", "right", '"x"', sandbox=sandbox) == RIGHT


def test_the_verifier_of_the_documentation_works_as_it_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox
) -> None:
    text = (ROOT / "docs" / "sandbox.md").read_text()
    (source,), (project,) = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "toml")
    )
    points = tomllib.loads(project)["project"]["entry-points"]["rollcast.verifiers"]
    ((name, target),) = points.items()
    module = source
    lines = "[rollcast.verifiers]\n" + f"{name} = {target}\n"
    install(tmp_path, monkeypatch, lines, **{target.partition(":")[0]: module})
    assert (
        grade(name, "<think>2, 3</think>a palindrome: level", '{"length": 5}', sandbox=sandbox)
        == RIGHT
    )
    assert grade(name, "a palindrome: levels", '{"length": 6}', sandbox=sandbox).status == "wrong"


def own_verifier(folder: Path, source: str) -> str:
    """The name of the function `grade` in a file with this source."""
    (folder / "reward.py").write_text(f"{source}\ndef grade(completion, row):\n    return 1.0\n")
    return f"{folder}/reward.py:grade"


def test_a_module_that_hangs_in_its_import_blocks_no_other_verifier(tmp_path: Path) -> None:
    hanging = own_verifier(tmp_path, "import time\ntime.sleep(600)")
    sandbox = Sandbox(Grading(deadline_seconds=60.0), Verifiers(named=[hanging]))
    with ThreadPoolExecutor(1) as threads:
        try:
            stuck = threads.submit(sandbox.grade, hanging, "", "{}")
            assert sandbox.grade("exact", "4", '"4"') == RIGHT
            assert not stuck.done()
            assert not sandbox.is_started(hanging)
        finally:
            sandbox.close()
        assert stuck.result(timeout=60.0) == Grade(0.0, "error"), (
            "closing the sandbox ends the import"
        )
    assert sandbox.grade("exact", "4", '"4"') == Grade(0.0, "error"), (
        "a closed sandbox starts nothing"
    )


def test_a_module_that_hangs_in_its_import_ends_with_the_process_that_grades(
    tmp_path: Path,
) -> None:
    """Also if that process is killed, and had no time to close anything."""
    started = tmp_path / "started"
    source = (
        f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    hanging = own_verifier(tmp_path, source)
    program = (
        "from rollcast.config.tasks import Grading; from rollcast.tasks.grading import Verifiers;"
        "from rollcast.tasks.sandbox.client import Sandbox;"
        "Sandbox(Grading(deadline_seconds=60.0), "
        f"Verifiers(named=[{hanging!r}])).grade({hanging!r}, '', '{{}}')"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as grading:
        until = time.monotonic() + 60.0
        while not (started.exists() and started.read_text()):
            assert time.monotonic() < until
            time.sleep(0.05)
        importing = psutil.Process(int(started.read_text()))
        grading.kill()
    importing.wait(timeout=30.0)


def test_a_failed_import_is_not_tried_again_for_every_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries"
    tries.touch()
    failing = own_verifier(
        tmp_path, f"open({str(tries)!r}, 'a').write('tried\\n')\nraise RuntimeError('no')"
    )
    sandbox = Sandbox(Grading(deadline_seconds=60.0), Verifiers(named=[failing]))
    with ThreadPoolExecutor(4) as threads:
        grades = list(threads.map(lambda _: sandbox.grade(failing, "", "{}"), range(8)))
    assert [grade.status for grade in grades] == ["error"] * 8
    assert {"RuntimeError: no" in grade.failure for grade in grades} == {True}
    assert tries.read_text() == "tried\n"
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)
    sandbox._starts[failing].next_try = 0.0
    own_verifier(tmp_path, "")
    assert sandbox.grade(failing, "", "{}") == RIGHT, "it is tried again after a while"
    sandbox.close()


def test_fewer_gradings_run_at_once_than_asked_for_if_there_are_fewer_cores() -> None:
    """One sentence says so; it names the setting, its value and what came of it."""
    cores = len(os.sched_getaffinity(0))
    assert gradings_at_once(1, "tasks.grading.processes") == (1, "")
    running, told = gradings_at_once(cores + 1, "tasks.grading.processes")
    assert 1 <= running <= cores
    assert told.startswith(f"tasks.grading.processes = {cores + 1} is reduced to {running}: ")


@pytest.mark.parametrize("obstacle", ["file", "open"])
def test_locks_are_not_taken_in_a_folder_that_others_could_use(
    obstacle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"rollcast-gradings-{os.getuid()}"
    if obstacle == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(UserError, match="TMPDIR"), one_core():
        pass


def processes_of(sandbox: Sandbox) -> list[psutil.Process]:
    servers = [psutil.Process(server.process.pid) for server in sandbox._servers.values()]
    return [*servers, *(child for server in servers for child in server.children(recursive=True))]


def test_a_judge_killed_before_it_read_its_request_is_a_timeout_and_costs_no_fork_server(
    sandbox: Sandbox,
) -> None:
    assert sandbox.grade("exact", "4", '"4"') == RIGHT
    server = processes_of(sandbox)[0]
    long = json.dumps("x" * 500_000)
    grades = {
        sandbox.grade("exact", "4", long, deadline_seconds=seconds)
        for seconds in (1e-6, 1e-5, 1e-4) * 5
    }
    # A judge may answer before a busy machine has killed it.
    assert Grade(0.0, "timeout") in grades
    assert grades <= {Grade(0.0, "timeout"), Grade(0.0, "wrong")}
    assert processes_of(sandbox)[0] == server


@pytest.mark.parametrize(
    "line",
    [
        {"status": "ok"},
        {"status": "ok", "reward": 7.0, "reason": ""},
        {"status": "ok", "reward": math.nan, "reason": ""},
        {"status": "ok", "reward": "much", "reason": ""},
        {"status": ["ok"], "reward": 1.0, "reason": ""},
        "[" * 60_000,
    ],
)
def test_a_verdict_that_no_judge_of_ours_writes_is_the_graders_error(line: Any) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    assert _decode(text.encode() + b'\n{"ended": "ended"}\n') == Grade(0.0, "error")


def test_closing_the_sandbox_leaves_no_process(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(1) as threads:
        assert sandbox.grade("exact", "4", '"4"') == RIGHT
        program = "```python\nwhile True: pass\n```"
        running = threads.submit(sandbox.grade, "code", program, ADDS)
        deadline = time.monotonic() + 60
        while len(processes_of(sandbox)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        processes = processes_of(sandbox)
        assert len(processes) == 4  # two servers, a judge, a program
        sandbox.close()
        assert psutil.wait_procs(processes, timeout=30)[1] == []
        assert running.result(timeout=30).status in ("error", "timeout")


@NEEDS_PROTECTIONS
def test_a_program_that_hangs_up_and_lives_on_costs_no_wait(sandbox: Sandbox) -> None:
    assert sandbox.grade("code", ADD, ADDS) == RIGHT

    def graded(body: str) -> tuple[str, str, float]:
        began = time.monotonic()
        grade = sandbox.grade(
            "code", f"```python\nimport os, time\ndef add(a, b):\n    {body}\n```", ADDS
        )
        return grade.status, grade.reason, time.monotonic() - began

    hung_up = [graded("os.close(3)\n    time.sleep(60)") for _ in range(3)]
    assert {told[:2] for told in hung_up} == {("wrong", "garbled")}
    assert min(seconds for _, _, seconds in hung_up) < 3.0
    assert graded("os.close(3)\n    os._exit(0)")[:2] == ("wrong", "exit")
    assert graded("os.abort()")[:2] == ("wrong", "crash")


@pytest.fixture
def _many_files() -> Iterator[None]:
    """So many that a new one gets a number of 4096 at least."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_400:
        pytest.skip(f"this process may open {hard} files only")
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4_400 if hard == resource.RLIM_INFINITY else hard, hard)
    )
    files = [os.open(os.devnull, os.O_RDONLY)]
    while files[-1] < 4_200:
        files.append(os.dup(files[0]))
    yield
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@NEEDS_PROTECTIONS
@pytest.mark.usefixtures("_many_files")
def test_a_program_of_a_grader_with_many_files_has_its_own_four_alone(sandbox: Sandbox) -> None:
    program = (
        "```python\nimport os\ndef has(number):\n    try: os.fstat(number)\n    except OSError: "
        "return False\n"
        "    return True\ndef found():\n    return [number for number in range(6_000) if "
        "has(number)]\n```"
    )
    reference = json.dumps({"kind": "tests", "tests": "assert found() == [0, 1, 2, 3]"})
    assert sandbox.grade("code", program, reference) == RIGHT


def test_processes_die_with_a_grader_that_is_killed() -> None:
    program = (
        "import json, threading, time\n"
        "from rollcast.tasks.sandbox.client import Sandbox\n"
        "sandbox = Sandbox()\n"
        f"good, adds = {ADD!r}, {ADDS!r}\n"
        "assert sandbox.grade('code', good, adds, deadline_seconds=60).status == 'ok'\n"
        "loop = '```python\\nwhile True: pass\\n```'\n"
        "threading.Thread(target=sandbox.grade, args=('code', loop, adds), daemon=True).start()\n"
        "print(sandbox._servers['code'].process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as grader:
        assert grader.stdout is not None
        server = psutil.Process(int(grader.stdout.readline()))
        deadline = time.monotonic() + 60
        while len(server.children(recursive=True)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        processes = [server, *server.children(recursive=True)]
        assert len(processes) == 3
        grader.kill()
    assert psutil.wait_procs(processes, timeout=30)[1] == []


def test_a_fork_server_that_dies_takes_its_children_along_and_is_replaced(sandbox: Sandbox) -> None:
    assert sandbox.grade("code", ADD, ADDS) == RIGHT
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sandbox.grade, "code", "```python\nwhile True: pass\n```", ADDS)
        deadline = time.monotonic() + 60
        while len(processes_of(sandbox)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        processes = processes_of(sandbox)
        assert len(processes) == 3
        processes[0].send_signal(signal.SIGKILL)
        assert running.result(timeout=30) == Grade(0.0, "error")
    assert psutil.wait_procs(processes, timeout=30)[1] == []
    assert sandbox.grade("code", ADD, ADDS) == RIGHT


def test_the_clock_of_a_grading_starts_when_it_starts() -> None:
    """Six at once, more than the cores: each sleeps for most of its deadline of processor time."""
    sandbox = Sandbox(Grading(processes=2, deadline_seconds=60.0))
    assert sandbox.grade("code", ADD, ADDS) == RIGHT
    slow = "```python\nimport time\ndef add(a, b):\n    time.sleep(0.4)\n    return a + b\n```"
    with ThreadPoolExecutor(2) as threads:
        grades = threads.map(
            lambda _: sandbox.grade("code", slow, ADDS, deadline_seconds=0.6), range(6)
        )
        assert list(grades) == [RIGHT] * 6
    sandbox.close()


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel that was built or started without it."""
    monkeypatch.setattr(protections, "has_landlock", lambda: False)


@pytest.mark.usefixtures("no_landlock")
def test_code_is_refused_with_one_sentence_where_the_kernel_cannot_contain_it(
    tmp_path: Path,
) -> None:
    data = {
        "kind": "jsonl",
        "name": "code",
        "path": str(tmp_path / "code.jsonl"),
        "verifier": "code",
    }
    with pytest.raises(
        UserError, match=r"tasks\.grading\.sandbox = 'strict'.*lacks Landlock.*sandbox: unsafe"
    ) as refusal:
        check_grading(Tasks.model_validate({"dataset": data}))
    assert "\n" not in str(refusal.value)
    check_grading(Tasks.model_validate({"dataset": data, "grading": {"sandbox": "unsafe"}}))
    check_grading(Tasks.model_validate({"dataset": data | {"verifier": "math"}}))
    strict, unsafe = Sandbox(), Sandbox(Grading(sandbox="unsafe", deadline_seconds=60.0))
    with pytest.raises(UserError, match="lacks Landlock"):
        strict.grade("code", ADD, ADDS)
    assert unsafe.grade("code", ADD, ADDS) == RIGHT
    unsafe.close()


@NEEDS_PROTECTIONS
def test_this_machine_has_what_strict_asks_for() -> None:
    protections.require_protections()
