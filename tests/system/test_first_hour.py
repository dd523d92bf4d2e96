"""What goes wrong in the first hour of a run that passed every check, on the screen of the real
`rollcast up`.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.runfolder.files import EVENTS, LOGS
from testkit.forked_programs import ForkedPrograms
from testkit.small_disk import fill, small_disk
from testkit.system.command import goes_on, last_step, read_output, rollcast
from testkit.system.harness import wait_for
from testkit.tiny_model import make_tiny_model
from tests.cli.mistakes import FIRST_MINUTES, is_as_told, told_by_the_page

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

SETTINGS: dict[str, Any] = {
    "run": "first",
    "model": {"path": "model", "dtype": "float32"},
    "tasks": {
        "dataset": {
            "kind": "jsonl",
            "name": "rows",
            "path": "rows.jsonl",
            "verifier": "./reward.py:grade",
        },
        "evaluation": {"num_prompts": 10, "rollouts_per_prompt": 2, "every_steps": 100},
    },
    "recipe": {
        "prompts_per_step": 4,
        "rollouts_per_prompt": 8,
        "max_prompt_tokens": 16,
        "max_completion_tokens": 64,
    },
    "budget": {"steps": 10_000},
    "generator": {"slots": 32, "block_size": 32, "cpu_kv_cache_gib": 1, "drain_seconds": 3},
    "trainer": {"threads": 1, "checkpoint_every_steps": 1_000},
    "forecaster": {"http_port": 0},
}
DISK_BYTES = 400 << 20
WRONG = re.compile(r"(?:error|warning): (.*)")


def prepare(home: Path, **changes: Any) -> None:
    """A random model, rows, a verifier that goes by the length of answers, and a run file."""
    make_tiny_model(home / "model")
    rows = [
        json.dumps({"prompt": f"{n} + {m}?", "answer": str(n + m)})
        for n in range(10)
        for m in range(10)
    ]
    (home / "rows.jsonl").write_text("\n".join(rows))
    (home / "reward.py").write_text(
        "def grade(completion, row):\n    return float(len(completion) % 2)\n"
    )
    (home / "run.yaml").write_text(yaml.safe_dump(SETTINGS | changes))


@contextmanager
def running(
    home: Path, programs: ForkedPrograms, **changes: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """`rollcast up`, stopped in order at the end."""
    prepare(home, **changes)
    with rollcast(home, "up", "--config", "run.yaml", programs=programs) as up:
        yield up
        up.send_signal(signal.SIGINT)
        assert up.wait(100) == 130, read_output(home)


def errors(home: Path) -> list[str]:
    """What was said to be wrong."""
    return [found[1] for line in read_output(home).splitlines() if (found := WRONG.search(line))]


def is_told(home: Path, title: str) -> bool:
    """Whether one of the errors is the sentence of docs/reference/mistakes.md."""
    wanted = told_by_the_page()[FIRST_MINUTES, title]
    return any(is_as_told(error, wanted) for error in errors(home))


def test_when_every_answer_is_cut_off_the_screen_says_so_and_what_to_raise(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    folder = tmp_path / "runs" / "first"
    cut_off, home = "Every answer is cut off", tmp_path
    with running(home, programs, recipe=SETTINGS["recipe"] | {"max_completion_tokens": 2}) as up:
        wait_for(lambda: goes_on(up, home) and is_told(home, cut_off), 300, "the reason")
    assert len(errors(home)) == 1, read_output(home)
    assert "can be trained on" in (folder / EVENTS).read_text(), "`show` says it later"
    assert "can be trained on" in (folder / LOGS / "trainer.log").read_text()
    assert last_step(folder) == 0


def test_a_full_disk_is_on_the_screen_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        running(tmp_path, programs, folder=str(disk)) as up,
    ):
        folder = disk / "first"
        wait_for(lambda: goes_on(up, tmp_path) and last_step(folder) >= 1, 300, "its first step")
        filler = fill(disk, but_bytes=0)
        wait_for(
            lambda: goes_on(up, tmp_path) and is_told(tmp_path, "The disk fills up"),
            60,
            "the sentence",
        )
        filler.unlink()
        stood_at = last_step(folder)
        wait_for(
            lambda: goes_on(up, tmp_path) and last_step(folder) > stood_at,
            300,
            "a step after it was freed",
        )
