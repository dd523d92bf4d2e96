"""Functions of a user's own: found by file and by import path, called with the row, told with file
and line.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from rollcast.config.datasets import JsonlDataset
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.config.tasks import Evaluation, Grading, Tasks
from rollcast.config.verifiers import FunctionVerifier
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.prompts import load
from rollcast.tasks.sandbox import client, protections
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.trial import reference_answer, try_verifiers
from rollcast.tasks.verifiers import Grade

SOURCE = """\
import helper

WORDS = open("words.txt").read().split()

def right(completion, row):
    return float(completion == row["solution"] and row["prompt"] == "1 + 1" and row["level"] == {"n": 3} and helper.ONE)

def knows_words(completion, row):
    return completion in WORDS

def divides(completion, row):
    return 1 / len(completion)

def fails(completion, row):
    if completion == "text":
        return "yes"
    if completion == "deep":
        return helper.fails()
    if completion == "writes":
        return float(open("/tmp/rollcast-own", "w").write(completion))
    return 1 / (len(completion) - len("divides"))
"""  # noqa: E501
HELPER = "ONE = 1.0\n\ndef fails():\n    raise RuntimeError('below')\n"
ROW = {"prompt": "1 + 1", "solution": "2", "level": {"n": 3}}


def line_of(text: str) -> int:
    return SOURCE.splitlines().index(text) + 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command is started: a file of functions, a helper beside it, data, rows."""
    (tmp_path / "reward.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "words.txt").write_text("two words")
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(ROW | {"prompt": f"{n} + 1"}) + "\n" for n in range(1, 9))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tasks(verifier: str, *declared: FunctionVerifier, deadline: float = 60.0) -> Tasks:
    return Tasks(
        dataset=JsonlDataset(name="rows", path=Path("rows.jsonl"), verifier=verifier),
        evaluation=Evaluation(num_prompts=2),
        verifiers=declared,
        grading=Grading(deadline_seconds=deadline),
    )


@pytest.fixture
def sandboxes() -> Iterator[list[Sandbox]]:
    made: list[Sandbox] = []
    yield made
    for sandbox in made:
        sandbox.close()


def graded(told: Tasks, completion: str, sandboxes: list[Sandbox]) -> Grade:
    verifiers = Verifiers.from_tasks(told)
    sandboxes.append(Sandbox(told.grading, verifiers))
    name = told.dataset.verifier  # type: ignore[union-attr]
    assert name is not None
    return grade(name, completion, json.dumps(ROW), sandbox=sandboxes[-1], verifiers=verifiers)


@pytest.mark.parametrize("verifier", ["./reward.py:right", "reward:right"])
def test_a_function_gets_the_completion_and_the_whole_row(
    folder: Path, sandboxes: list[Sandbox], verifier: str
) -> None:
    told = tasks(verifier)
    assert graded(told, "2", sandboxes) == Grade(1.0, "ok")
    assert (
        grade(
            verifier,
            "3",
            json.dumps(ROW),
            sandbox=sandboxes[-1],
            verifiers=Verifiers.from_tasks(told),
        ).status
        == "wrong"
    )


def test_what_is_read_at_import_is_there_in_the_sandbox(
    folder: Path, sandboxes: list[Sandbox]
) -> None:
    assert graded(tasks("./reward.py:knows_words"), "two", sandboxes).status == "ok"


def test_what_fails_is_no_verdict_and_a_true_sentence(
    folder: Path, sandboxes: list[Sandbox]
) -> None:
    """The others are in docs/reference/mistakes.md; tests/cli/test_mistakes_of_reward_functions.py
    makes them.
    """
    line = line_of('    return 1 / (len(completion) - len("divides"))')
    says = {
        "text": r"the verifier returned 'yes' \(DIR/reward.py, line \d+\)",
        "divides": rf"ZeroDivisionError: .* \(DIR/reward.py, line {line}\)$",
        "deep": r"RuntimeError: below \(DIR/helper.py, line 4\)",
    }
    if not protections.missing():
        says["writes"] = r"PermissionError: .*in the sandbox"
    told = tasks("./reward.py:fails")
    verifiers = Verifiers.from_tasks(told)
    sandboxes.append(Sandbox(told.grading, verifiers))
    for completion, sentence in says.items():
        found = grade(
            "./reward.py:fails",
            completion,
            json.dumps(ROW),
            sandbox=sandboxes[-1],
            verifiers=verifiers,
        )
        assert (found.reward, found.status) == (0.0, "error")
        assert re.search(sentence.replace("DIR", re.escape(str(folder))), found.failure), (
            found.failure
        )


def test_a_module_that_is_nowhere_is_named(folder: Path, sandboxes: list[Sandbox]) -> None:
    said = graded(tasks("nowhere_to_be_found.rewards:f"), "a", sandboxes).failure
    assert said.startswith(
        "it cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    )


def test_trusted_it_has_files_threads_and_the_users_environment(
    folder: Path, sandboxes: list[Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import os, subprocess, threading\n"
        "OPEN = open('words.txt')\n"
        "def all_of_it(completion, row):\n"
        "    seen = []\n"
        "    thread = threading.Thread(target=lambda: seen.append(open('words.txt').read()))\n"
        "    thread.start(); thread.join()\n"
        "    said = subprocess.run(['cat', 'words.txt'], capture_output=True, text=True).stdout\n"
        "    ours = [name for name in os.environ if name.startswith('ROLLCAST_')]\n"
        "    return float(seen[0] == said == OPEN.read() and os.environ['THEIR_KEY'] == 'k' and "
        "not ours)\n"
        "def leaves(completion, row):\n"
        "    open('pid', 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "    return 1.0\n"
    )
    (folder / "own.py").write_text(source)
    monkeypatch.setenv("THEIR_KEY", "k")
    monkeypatch.setenv("ROLLCAST_REDIS_PASSWORD", "secret")
    trusted = FunctionVerifier(name="mine", code="./own.py:all_of_it", trusted=True)
    assert graded(tasks("mine", trusted), "x", sandboxes) == Grade(1.0, "ok")
    leaves = FunctionVerifier(name="mine", code="./own.py:leaves", trusted=True)
    assert graded(tasks("mine", leaves), "x", sandboxes) == Grade(1.0, "ok")
    deadline = time.monotonic() + 60.0
    with suppress(psutil.NoSuchProcess):  # where nobody buries it, it is a zombie
        left = psutil.Process(int((folder / "pid").read_text()))
        while left.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "what a trusted verifier started lives on"
            time.sleep(0.05)


def test_trusted_gradings_at_once_do_not_hold_one_another_up(
    folder: Path, sandboxes: list[Sandbox]
) -> None:
    """Each judge must have let go of the others' connections: an end that is held open is never
    seen.
    """
    began, may_end = folder / "began", folder / "may-end"
    (folder / "own.py").write_text(
        "import pathlib, time\n"
        "def waits(completion, row):\n"
        "    if completion == 'long':\n"
        f"        pathlib.Path({str(began)!r}).touch()\n"
        f"        while not pathlib.Path({str(may_end)!r}).exists():\n"
        "            time.sleep(0.05)\n"
        "    return 1.0\n"
    )
    told = tasks(
        "mine", FunctionVerifier(name="mine", code="./own.py:waits", trusted=True), deadline=120.0
    )
    verifiers = Verifiers.from_tasks(told)
    sandboxes.append(Sandbox(told.grading, verifiers))
    sandboxes[-1].start("mine")
    ended: list[str] = []

    def one(completion: str) -> None:
        assert (
            grade("mine", completion, "{}", sandbox=sandboxes[-1], verifiers=verifiers).status
            == "ok"
        )
        ended.append(completion)

    long, short = (
        threading.Thread(target=one, args=[completion]) for completion in ("long", "short")
    )
    long.start()
    deadline = time.monotonic() + 60.0
    while not began.exists():
        assert time.monotonic() < deadline, "the long grading never began"
        time.sleep(0.02)
    short.start()
    short.join(timeout=60)
    assert ended == ["short"]
    may_end.touch()
    long.join(timeout=60)
    assert ended == ["short", "long"]


def test_a_trial_names_the_verifier_and_what_it_failed_on(folder: Path) -> None:
    told = tasks("./reward.py:divides")
    with pytest.raises(
        UserError,
        match=r"verifier ./reward.py:divides: gives no verdict on the completion '': ZeroDiv",
    ):
        try_verifiers(told, load(told).train)
    sound = tasks("./reward.py:right")
    try_verifiers(sound, load(sound).train)


def test_a_module_that_ends_its_process_or_hangs_is_said_in_a_sentence(
    folder: Path, sandboxes: list[Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ends.py").write_text("import os\nos._exit(3)\n")
    (folder / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    for name, said in (
        ("ends", "ends the process when it is imported"),
        ("hangs", "takes more than 1.5 s to import"),
    ):
        monkeypatch.setattr(client, "START_SECONDS", 1.5 if name == "hangs" else 120.0)
        found = graded(tasks(f"./{name}.py:grade"), "x", sandboxes)
        assert (found.reward, found.status) == (0.0, "error")
        assert found.failure == f"it cannot be imported: its module {said}"


def test_an_answer_of_zero_is_tried_as_well(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"prompt": str(n), "answer": 0}) + "\n" for n in range(4))
    )
    rows = JsonlDataset(name="d", path=tmp_path / "rows.jsonl", verifier="m:f")
    train = load(Tasks(dataset=rows, evaluation=Evaluation(num_prompts=1))).train
    assert {reference_answer(prompt) for prompt in train} == {"0"}


def test_a_wire_cannot_name_code_that_the_run_file_does_not() -> None:
    with pytest.raises(UserError, match="no data set of the run file names it"):
        Verifiers.from_tasks(Tasks()).find("/tmp/anything.py:run")


def test_a_row_with_dates_is_text_and_one_with_bytes_is_refused(tmp_path: Path) -> None:
    import datetime

    import pyarrow
    import pyarrow.parquet

    from rollcast.config.datasets import ParquetDataset

    file = tmp_path / "rows.parquet"
    for field, refused in ((datetime.date(2026, 1, 2), False), (b"\xff", True)):
        rows = [{"prompt": f"{n}", "extra": field} for n in range(4)]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
        told = Tasks(
            dataset=ParquetDataset(name="d", path=file, verifier="m:f"),
            evaluation=Evaluation(num_prompts=1),
        )
        if refused:
            with pytest.raises(
                UserError, match=r"row 1: field 'extra' holds bytes, which is no JSON value"
            ):
                load(told)
        else:
            assert {json.loads(prompt.reference)["extra"] for prompt in load(told).train} == {
                "2026-01-02"
            }


PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text()


def test_the_function_of_the_page_does_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxes: list[Sandbox]
) -> None:
    (source,) = re.findall(r"```python\n# reward.py\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "reward.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    for run_file, place in zip(
        re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[:2], ("sandbox", "process"), strict=True
    ):
        told = parse_run_config(yaml.safe_load(run_file), source="page").tasks
        (name,) = verifier_names(told)
        assert Verifiers.from_tasks(told).find(name).place == place
        sandboxes.append(Sandbox(told.grading, Verifiers.from_tasks(told)))
        for completion, reward in (
            ("42", 1.0),
            (f"<think>{'hm' * 99}</think>It is 42", 1.0),
            ("hm " * 99 + "42", 0.5),
        ):
            row = json.dumps({"prompt": "6 x 7?", "answer": 42})
            assert (
                grade(
                    name,
                    completion,
                    row,
                    sandbox=sandboxes[-1],
                    verifiers=Verifiers.from_tasks(told),
                ).reward
                == reward
            )
