"""The launcher of the trainer's ranks: environment, exit codes, signals, the lock; with real
processes.

The ranks are stand-ins: real ones would need torch and seconds, and what a rank does is not the
launcher's business.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.forked_programs import Forked, ForkedPrograms

LAUNCHER = "tests.trainer.stand_in_launch"

RANK = """
import json, os, pathlib, signal, sys, time
rank = os.environ.get("RANK", "0")
folder = pathlib.Path(os.environ["OUT"])
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
seen = {name: value for name, value in os.environ.items() if name in
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
(folder / f"{rank}.json").write_text(json.dumps({"environment": seen, "arguments": sys.argv[1:]}))
plan = json.loads(os.environ["PLAN"]).get(rank, 0)
if isinstance(plan, list):  # one for each start
    starts = folder / f"{rank}.starts"
    starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
    plan = plan[len(starts.read_text()) - 1]
if plan == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if plan == "until-stopped":
    while not stopped:
        time.sleep(0.02)
    sys.exit(143)
if plan == "hang":
    while True:
        time.sleep(0.1)
sys.exit(plan)
"""


@pytest.fixture(scope="module")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPrograms]:
    """What launchers are forked of."""
    with ForkedPrograms(tmp_path_factory.mktemp("forked"), (LAUNCHER,)) as launchers:
        yield launchers


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(f"run: small\nfolder: {tmp_path}/runs\nmodel: {{path: /models/none}}\n")
    return path


class Launches:
    """Starts launchers of one run file."""

    def __init__(self, run_file: Path, launchers: ForkedPrograms) -> None:
        self.run_file = run_file
        self._launchers = launchers

    def start(
        self,
        plan: dict[str, object],
        *arguments: str,
        index: str = "0",
        out: str = ".",
        **variables: str,
    ) -> Forked:
        """`out`: folder, beside the run file, into which ranks write what they saw."""
        folder = self.run_file.parent
        (folder / "rank.py").write_text(RANK)
        environment = {
            "OUT": str(folder / out),
            "PLAN": json.dumps(plan),
            "JOB_COMPLETION_INDEX": index,
            **variables,
        }
        command = [str(folder / "rank.py"), *arguments, f"--config={self.run_file}", "--resume"]
        return self._launchers.start(LAUNCHER, command, self.log, environment)

    @property
    def log(self) -> Path:
        """What all of them print."""
        return self.run_file.with_name("launch.log")

    def only_error(self) -> str:
        """The one sentence that a user reads."""
        said = self.log.read_text()
        assert "Traceback" not in said
        (error,) = [line for line in said.splitlines() if line.startswith("error: ")]
        return error


@pytest.fixture
def launches(run_file: Path, launchers: ForkedPrograms) -> Launches:
    return Launches(run_file, launchers)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


def seen(run_file: Path, rank: int) -> dict[str, object]:
    data: dict[str, object] = json.loads((run_file.parent / f"{rank}.json").read_text())
    return data


def test_one_rank_opens_no_store(launches: Launches, run_file: Path) -> None:
    assert launches.start({}).wait(60) == 0
    assert seen(run_file, 0) == {
        "environment": {},
        "arguments": ["--config", str(run_file), "--resume"],
    }


def test_ranks_of_one_machine_need_no_name(launches: Launches, run_file: Path) -> None:
    assert launches.start({}, "--ranks=2", "--main-host=no.such.name").wait(60) == 0
    environment = seen(run_file, 1)["environment"]
    assert isinstance(environment, dict)
    assert environment["MASTER_ADDR"] == "127.0.0.1"


def test_ranks_of_the_second_machine_know_their_place(launches: Launches, run_file: Path) -> None:
    arguments = ("--nodes=2", "--ranks=2", "--main-host=localhost", "--main-port=29511")
    assert launches.start({}, *arguments, index="1").wait(60) == 0
    assert not (run_file.parent / "0.json").exists()
    assert seen(run_file, 3)["environment"] == {
        "RANK": "3",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29511",
    }


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({"0": 2, "1": 1}, 2),
        ({"0": 1, "1": 2}, 2),
        ({"0": 3, "1": "hang"}, 3),
        ({"0": "hang", "1": 5}, 5),
        ({"0": 143, "1": 0}, 143),
        ({"0": 77, "1": 1}, 2),  # wrong numbers twice: no restart
        ({"0": 0, "1": 0}, 0),
    ],
)
def test_the_exit_code_says_what_happened(
    launches: Launches, plan: dict[str, object], code: int
) -> None:
    """A user's mistake wins; a rank that hangs because another failed is ended and its signal is
    not the answer.
    """
    assert launches.start(plan, "--ranks=2").wait(60) == code


def test_a_killed_rank_is_named_with_its_signal(launches: Launches) -> None:
    arguments = ("--nodes=2", "--ranks=2", "--main-host=localhost")
    assert launches.start({"2": "hang", "3": "killed"}, *arguments, index="1").wait(60) == 137
    said = launches.log.read_text()
    assert "rank 3 killed by SIGKILL" in said
    assert "rank 2" not in said, "the launcher ended it itself"


MARK = "ROLLCAST_RANKS_RESTARTED"


@pytest.mark.parametrize(
    ("plan", "marked", "min_work_seconds", "code", "starts"),
    [
        ([143, 0], True, "600", 0, 2),
        ([143, 143, 143, 0], True, "600", 0, 4),
        (["killed", 0], True, "0", 0, 2),
        ([1, 2], True, "0", 2, 2),
        ([1] * 9, True, "0", 1, 6),
        (["killed", 0], True, "600", 137, 1),
        ([1, 0], True, "600", 1, 1),
        ([143, 0], False, "0", 143, 1),
        (["killed", 0], False, "0", 137, 1),
    ],
    ids=str,
)
def test_ranks_start_again_where_the_pod_stays(
    launches: Launches,
    run_file: Path,
    plan: list[object],
    marked: bool,
    min_work_seconds: str,
    code: int,
    starts: int,
) -> None:
    """143 without a signal of our own: another machine was moved.

    A failure counts if it came soon.
    """
    mark = run_file.parent / "restarted"
    variables = {"MIN_WORK_SECONDS": min_work_seconds} | ({MARK: str(mark)} if marked else {})
    assert launches.start({"0": plan}, **variables).wait(60) == code
    assert len((run_file.parent / "0.starts").read_text()) == starts
    assert mark.exists() is (starts > 1), "the liveness probe must know that ranks start"


def test_whoever_was_asked_to_go_does_not_start_ranks_again(
    launches: Launches, run_file: Path
) -> None:
    plan = ["until-stopped", 0]
    process = launches.start(
        {"0": plan}, MIN_WORK_SECONDS="0", **{MARK: str(run_file.parent / "restarted")}
    )
    wait_for(run_file.parent / "0.json")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert (run_file.parent / "0.starts").read_text() == "x"


def test_sigterm_reaches_every_rank(launches: Launches, run_file: Path) -> None:
    process = launches.start({"0": "until-stopped", "1": "until-stopped"}, "--ranks=2")
    wait_for(run_file.parent / "0.json")
    wait_for(run_file.parent / "1.json")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143


def test_the_folder_is_held_until_the_trainer_before_has_ended(
    launches: Launches, run_file: Path
) -> None:
    folder = run_file.parent / "runs" / "small"
    folder.mkdir(parents=True)
    with (folder / ".trainer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = launches.start({})
        time.sleep(2.0)
        assert not (run_file.parent / "0.json").exists()
        assert process.poll() is None
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert process.wait(30) == 0
    assert (run_file.parent / "0.json").exists()


def test_sigterm_ends_the_wait_for_the_folder(launches: Launches, run_file: Path) -> None:
    folder = run_file.parent / "runs" / "small"
    folder.mkdir(parents=True)
    with (folder / ".trainer.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = launches.start({})
        time.sleep(3.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert not (run_file.parent / "0.json").exists()


class Names:
    """The two files of the chart's ConfigMaps, as they are refreshed in every trainer's pod."""

    def __init__(self, launches: Launches, rendered: str, accepted: str) -> None:
        self._launches = launches
        self._folder = launches.run_file.parent
        self.rendered, self.accepted = (
            self._folder / "rendered-trainer",
            self._folder / "accepted-trainer",
        )
        self.says(rendered, accepted)

    def says(self, rendered: str, accepted: str) -> None:
        self.rendered.write_text(f"{rendered}\n")
        self.accepted.write_text(f"{accepted}\n")

    def start(self, job: str, out: str, plan: object) -> Forked:
        """A trainer of this Job; with a plan that runs, once it does."""
        (self._folder / out).mkdir()
        files = (f"--rendered-in={self.rendered}", f"--accepted-in={self.accepted}")
        return self._launches.start({"0": plan}, f"--job={job}", *files, out=out)


def test_a_trainer_leaves_when_its_successor_was_accepted_and_not_before(
    launches: Launches, run_file: Path
) -> None:
    """An upgrade changes `rendered` first, then makes the Job; `accepted` changes after the API
    server took it all.
    """
    names = Names(launches, rendered="a", accepted="a")
    older = names.start("a", "older", "until-stopped")
    wait_for(run_file.parent / "older" / "0.json")
    names.says(rendered="b", accepted="a")
    newer = names.start("b", "newer", 0)
    time.sleep(2.5)
    assert older.poll() is None, "the upgrade may still fail"
    assert newer.poll() is None, "it waits for the folder: it is the one to come"
    assert not (run_file.parent / "newer" / "0.json").exists()
    names.says(rendered="b", accepted="b")
    assert older.wait(30) == 76
    assert newer.wait(30) == 0
    assert (run_file.parent / "newer" / "0.json").exists()


def test_after_an_upgrade_that_failed_the_trainer_before_stays_and_a_forgotten_one_leaves(
    launches: Launches, run_file: Path
) -> None:
    names = Names(launches, rendered="b", accepted="a")
    before = names.start("a", "before", "until-stopped")
    wait_for(run_file.parent / "before" / "0.json")
    forgotten = names.start("b", "forgotten", 0)
    names.says(rendered="a", accepted="a")  # helm rollback
    assert forgotten.wait(30) == 76, "it waited for the folder, which is not its to have"
    assert not (run_file.parent / "forgotten" / "0.json").exists()
    assert before.poll() is None
    names.says(rendered="c", accepted="a")  # another upgrade, whose Job is refused again
    time.sleep(2.0)
    assert before.poll() is None
    before.send_signal(signal.SIGTERM)
    assert before.wait(30) == 143


@pytest.mark.parametrize(("asked", "code"), [(False, 76), (True, 143)])
def test_all_machines_leave_for_the_accepted_trainer_as_one(
    launches: Launches, run_file: Path, asked: bool, code: int
) -> None:
    """Ranks that another machine ended, which saw the name before; who was asked to go says no more
    than that.
    """
    process = Names(launches, "b", "b").start("a", "out", "until-stopped" if asked else 143)
    wait_for(run_file.parent / "out" / "0.json")
    if asked:
        process.send_signal(signal.SIGTERM)
    assert process.wait(30) == code


@pytest.mark.parametrize("accepted", [None, ""])
def test_a_trainer_stays_while_none_was_accepted(
    launches: Launches, run_file: Path, accepted: str | None
) -> None:
    """No file, or an empty one: before the first install has ended, and while Helm replaces the
    ConfigMap.
    """
    names = Names(launches, "b", "")
    if accepted is None:
        names.accepted.unlink()
    process = names.start("a", "out", "until-stopped")
    wait_for(run_file.parent / "out" / "0.json")
    time.sleep(2.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143


@pytest.mark.parametrize(
    ("fault", "code", "sentence"),
    [("busy", 1, "Text file busy"), ("a file in the way", 2, "Not a directory")],
)
def test_only_what_a_user_must_mend_ends_the_run_for_good(
    launches: Launches, run_file: Path, fault: str, code: int, sentence: str
) -> None:
    """Exit code 2 fails the Job; storage that is in trouble for now must not."""
    folder = run_file.parent / "runs" / "small"
    if (
        fault == "busy"
    ):  # a program that runs cannot be opened for writing: not for a matter of rights or paths
        program = run_file.parent / "program"
        shutil.copy("/bin/sleep", program)
        running = subprocess.Popen([program, "60"])
        folder.mkdir(parents=True)
        (folder / ".trainer.lock").symlink_to(program)
    else:
        running = None
        folder.parent.write_text("")
    try:
        returned = launches.start({}).wait(30)
    finally:
        if running is not None:
            running.kill()
            running.wait(10)
    assert returned == code
    error = launches.only_error()
    assert error.startswith("error: folder = ")
    assert sentence in error


def test_a_wrong_run_file_is_a_users_mistake(launches: Launches, run_file: Path) -> None:
    run_file.write_text("run: small\nmodle: {}\n")
    assert launches.start({}).wait(30) == 2
    assert "modle is not a setting" in launches.only_error()
