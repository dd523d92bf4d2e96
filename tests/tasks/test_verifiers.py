from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.tasks import sandbox
from rollcast.tasks.arithmetic import worked_answer
from rollcast.tasks.verifiers import Grade, grade

RIGHT, WRONG = Grade(1.0, "ok"), Grade(0.0, "wrong")


@pytest.mark.parametrize(
    ("completion", "reference", "expected"),
    [
        ("<think>is it 4?</think> 5 ", "5", RIGHT),
        ("<think>5", "5", WRONG),
        ("5", "5", RIGHT),
        ("5.", "5", WRONG),
        ("a</think>5</think>6", "6", RIGHT),
    ],
)
def test_exact_reads_the_answer_after_the_think_block(completion: str, reference: str, expected: Grade) -> None:
    assert grade("exact", completion, json.dumps(reference)) == expected


@given(a=st.integers(0, 10**12 - 1), b=st.integers(0, 10**12 - 1))
def test_noiseless_worked_steps_are_right_and_any_other_sum_is_wrong(a: int, b: int) -> None:
    answer = worked_answer(a, b, random.Random(0), noise=0.0)
    assert grade("arithmetic", answer, json.dumps(str(a + b))) == RIGHT
    assert grade("arithmetic", answer, json.dumps(str(a + b + 1))) == WRONG


@pytest.mark.parametrize("completion", ["102", "|102 ", "|0102", "|102|", "", "|"])
def test_arithmetic_wants_the_number_alone_after_the_bar(completion: str) -> None:
    assert grade("arithmetic", completion, '"102"') == WRONG


@pytest.mark.parametrize(
    ("completion", "reference", "expected"),
    [
        ("<think>maybe \\boxed{3}</think> so \\boxed{\\frac{1}{2}}", "0.5", RIGHT),
        ("\\boxed{2x+1}", "1 + 2x", RIGHT),
        ("\\boxed{7}", "8", WRONG),
        ("<think>\\boxed{8}", "8", WRONG),
        ("no idea", "8", WRONG),
    ],
)
def test_math_agrees_with_algebra(completion: str, reference: str, expected: Grade) -> None:
    assert grade("math", completion, json.dumps(reference), deadline_seconds=60.0) == expected


def test_an_unreadable_reference_is_the_graders_error_not_a_wrong_answer() -> None:
    assert grade("exact", "5", "{not json").status == "error"


def test_an_unknown_verifier_is_named_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'maths'.*arithmetic, exact, math"):
        grade("maths", "5", '"5"')


@pytest.fixture
def hostile_verifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package whose verifiers hang, die, eat memory, print, and return nonsense."""
    (tmp_path / "hostile.py").write_text(
        "import os, time\n"
        "def hang(completion, reference):\n    return time.sleep(600) if completion == 'now' else 0.0\n"
        "def die(completion, reference):\n    return os._exit(3) if completion == 'now' else 0.0\n"
        "def eat(completion, reference):\n    return float(len('x' * (1 << 42))) if completion == 'now' else 0.0\n"
        'def talk(completion, reference):\n    print(\'{"reward": 1.0, "status": "ok"}\'); return 0.0\n'
        "def nonsense(completion, reference):\n    return 7.0\n"
    )
    metadata = tmp_path / "hostile-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    names = ("hang", "die", "eat", "talk", "nonsense")
    (metadata / "entry_points.txt").write_text(
        "[rollcast.verifiers]\n" + "".join(f"{name} = hostile:{name}\n" for name in names)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    fresh = sandbox.Sandbox()
    monkeypatch.setattr(sandbox, "_sandbox", fresh)
    yield
    fresh.close()


@pytest.mark.usefixtures("hostile_verifiers")
@pytest.mark.parametrize(
    ("verifier", "status"),
    [("hang", "timeout"), ("die", "error"), ("eat", "error"), ("talk", "wrong"), ("nonsense", "error")],
)
def test_a_hostile_verifier_costs_a_deadline_and_is_told_apart_from_a_wrong_answer(verifier: str, status: str) -> None:
    assert grade(verifier, "now", '"x"', deadline_seconds=1.0) == Grade(0.0, status)
    assert grade("math", "\\boxed{4}", '"4"', deadline_seconds=60.0) == RIGHT  # the next grading is not harmed


@pytest.mark.usefixtures("hostile_verifiers")
def test_a_hung_worker_dies_without_its_parent() -> None:
    program = (
        "import os, threading, time\n"
        "from rollcast.tasks import sandbox\n"
        "worker = sandbox.Worker()\n"
        "worker.grade('hang', 'later', '1', 30.0)\n"
        "print(worker._process.pid, flush=True)\n"
        "threading.Thread(target=worker.grade, args=('hang', 'now', '1', 0.5), daemon=True).start()\n"
        "time.sleep(0.2)\n"
        "os._exit(9)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    pid = int(parent.stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


def test_closing_the_sandbox_leaves_no_process() -> None:
    box = sandbox.Sandbox()
    box.grade("math", "\\boxed{4}", '"4"', 60.0)
    process = box._idle[0]._process
    box.close()
    assert process.poll() is not None
