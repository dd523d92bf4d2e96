"""A program that answers questions; one that is dead, hangs or writes something else is one
sentence.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollcast.cli.corpus.program import MAX_ANSWER_BYTES, ForecasterProgram
from rollcast.cli.corpus.protocol import Question
from rollcast.config.errors import UserError

FORECAST = Question(
    repository="a/b", metric="train", curve="step,pass_rate\n1.0,0.5\n", compute=(2.0, 3.0)
)
ADVICE = Question(
    repository="a/b", metric="train", curve="step,pass_rate\n1.0,0.5\n", budget=9.0, worth=0.05
)
EACH_LINE = "import json, sys\nfor line in sys.stdin:\n    q = json.loads(line)\n    "
GOOD = EACH_LINE + (
    "print(json.dumps({'id': q['id'], 'quantiles': [[0, 0.1, 0.2, 0.3, q['compute'][0]]] * "
    "2}), flush=True)"
)


@contextmanager
def program(folder: Path, source: str, answer_seconds: float = 30.0) -> Iterator[ForecasterProgram]:
    path = folder / "forecaster.py"
    path.write_text(source)
    running = ForecasterProgram([sys.executable, str(path)], answer_seconds)
    try:
        yield running
    finally:
        running.kill()
        running.close()


def test_questions_are_answered_one_after_the_other(tmp_path: Path) -> None:
    with program(tmp_path, GOOD) as running:
        for _ in range(2):
            answer = running.ask(FORECAST)
            assert answer.quantiles == ((0.0, 0.1, 0.2, 0.3, 2.0),) * 2
            assert (answer.verdict, answer.advice, answer.refused) == (None, None, None)


def test_a_refusal_is_an_answer(tmp_path: Path) -> None:
    with program(
        tmp_path, EACH_LINE + "print(json.dumps({'id': q['id'], 'refused': 'no idea'}), flush=True)"
    ) as running:
        assert running.ask(ADVICE).refused == "no idea"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("'hello'", "gave no valid answer (Invalid JSON"),
        ("'{}'", "gave no valid answer (id: Field required)"),
        ("json.dumps({'id': 7, 'refused': 'x'})", "(id: is 7 instead of 1)"),
        (
            "json.dumps({'id': 1, 'quantiles': [[0, 0.1, 0.2, 0.3, 0.4]]})",
            "(quantiles: 1 rows, but compute has 2)",
        ),
        ("json.dumps({'id': 1, 'quantiles': [[0, 0.3, 0.2, 0.3, 0.4]] * 2})", "must ascend"),
        (
            "json.dumps({'id': 1, 'quantiles': [[0, 0.1, 0.2, 0.3]] * 2})",
            "quantiles.0.4: Field required",
        ),
        (
            "json.dumps({'id': 1, 'quantiles': [[0, 0, 0, 0, float('nan')]] * 2})",
            "gave no valid answer",
        ),
        ("json.dumps({'id': 1}) + chr(10) + json.dumps({'id': 1})", "wrote more than one line"),
    ],
)
def test_a_line_that_is_no_answer_is_one_sentence(
    tmp_path: Path, answer: str, sentence: str
) -> None:
    source = EACH_LINE + f"sys.stdout.write({answer} + chr(10)); sys.stdout.flush()"
    with program(tmp_path, source) as running, pytest.raises(UserError) as refused:
        running.ask(FORECAST)
    assert str(refused.value).startswith(f"--forecaster {sys.executable}: question 1: the program ")
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("None", "advice: is absent"),
        ("{'kind': 'pause'}", "advice.kind: Input should be 'stop', 'continue' or 'wait'"),
        (
            "{'kind': 'stop', 'chance': 1.5}",
            "advice.chance: Input should be less than or equal to 1",
        ),
        ("{'kind': 'wait', 'evaluations': -1}", "advice.evaluations"),
    ],
)
def test_advice_that_cannot_be_followed_is_one_sentence(
    tmp_path: Path, given: str, sentence: str
) -> None:
    source = EACH_LINE + f"print(json.dumps({{'id': q['id'], 'advice': {given}}}), flush=True)"
    with program(tmp_path, source) as running, pytest.raises(UserError) as refused:
        running.ask(ADVICE)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import sys; sys.exit(3)", "ended with exit code 3 before it answered"),
        (
            "import sys; sys.stdin.readline(); sys.exit(0)",
            "ended with exit code 0 before it answered",
        ),
        (f"while True: print('x' * {2**16}, end='')", f"wrote more than {MAX_ANSWER_BYTES} bytes"),
        ("while True: print('again', flush=True)", "the program "),
    ],
)
def test_a_program_that_ends_or_never_stops_writing_is_one_sentence(
    tmp_path: Path, source: str, sentence: str
) -> None:
    with program(tmp_path, source) as running, pytest.raises(UserError) as refused:
        running.ask(FORECAST)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(600)",
        "import sys, time\nwhile True:\n    print('.', end='', flush=True)\n    time.sleep(0.05)",
    ],
)
def test_a_program_that_hangs_is_one_sentence_even_if_it_does_not_read(
    tmp_path: Path, source: str
) -> None:
    large = FORECAST.model_copy(update={"curve": "1.0,0.5\n" * 50_000})
    with (
        program(tmp_path, source, answer_seconds=0.5) as running,
        pytest.raises(UserError, match=r"within 0\.5 s"),
    ):
        running.ask(large)


def test_a_large_question_reaches_a_slow_reader(tmp_path: Path) -> None:
    large = FORECAST.model_copy(update={"curve": "1.0,0.5\n" * 50_000})
    with program(tmp_path, "import time; time.sleep(0.2)\n" + GOOD) as running:
        assert len(running.ask(large).quantiles) == 2


def test_a_killed_program_takes_its_own_processes_along(tmp_path: Path) -> None:
    source = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with program(tmp_path, source, answer_seconds=0.1) as running:
        with pytest.raises(UserError, match="gave no answer"):
            running.ask(FORECAST)
        deadline = time.monotonic() + 30.0
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_command_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(UserError, match="--forecaster /no/such: cannot be started"):
        ForecasterProgram(["/no/such"])
