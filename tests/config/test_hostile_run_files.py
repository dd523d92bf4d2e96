"""Run files that are made to take time, memory or the whole screen: one short answer each, by a
bounded process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rollcast.config.run import load_run_config
from tests.config.wrong_run_files import RIGHT

MEMORY_BYTES = 2 << 30
CPU_SECONDS = 30
READ = """
import json, os, resource, sys
from pathlib import Path
from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config

memory, seconds = map(int, sys.argv[1:])
for line in sys.stdin:
    sys.stdout.flush()
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(status), flush=True)
        continue
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        load_run_config(Path(json.loads(line)))
    except UserError as error:
        print(*map(json.dumps, str(error).splitlines()), sep="\\n")
    break
"""
"""Reads every run file in a process of its own, which is the fork of one that has the imports
done."""


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", READ, str(MEMORY_BYTES), str(CPU_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    ) as process:
        yield process
        process.communicate(timeout=60)


def said(reader: subprocess.Popen[str], path: Path) -> list[str]:
    """What the file is refused with, by a process of bounded memory and time that ends with 0."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(json.dumps(str(path)), file=reader.stdin, flush=True)
    lines = []
    while isinstance(answer := json.loads(reader.stdout.readline()), str):
        lines.append(answer)
    assert answer == 0
    return lines


def laughs(depth: int = 9) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join(lines) + f"\ngenerator: {{engine: {{override: *a{depth - 1}}}}}\n"


def merges(depth: int = 9) -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, depth)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (laughs(), "holds more than 100,000 values, its aliases (*name) written out"),
        (merges(), "holds more than 100,000 values, its aliases (*name) written out"),
        ("run: &a [*a]\n", "holds more than 100,000 values, its aliases (*name) written out"),
        ("seed: 0x" + "f" * 900_000 + "\n", "a number has 900,002 digits"),
        ("seed: 1" + ":10" * 300_000 + "\n", "a number has 900,001 digits"),
        ("seed: 1" + "0" * 900_000 + ".5\n", "a number has 900,003 digits"),
        ("a: " * 100_000, "mapping values are not allowed here"),
        ("[" * 500_000, "nested too deeply"),
    ],
    ids=["lists", "merges", "itself", "hexadecimal", "sexagesimal", "float", "colons", "brackets"],
)
def test_what_is_no_run_file_is_one_sentence(
    text: str, sentence: str, reader: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    (told,) = said(reader, path)
    assert sentence in told
    assert len(told) < 1_000


@pytest.mark.parametrize(
    "change",
    [
        {f"setting_{number}": 1 for number in range(2_000)},
        {"recipe": {f"learning_rate_{number}": 1 for number in range(2_000)}},
        {"recipe": {"schedule": {f"staleness_{number}": 1 for number in range(2_000)}}},
        {"generator": {f"slots{number}": 1 for number in range(20_000)}},
    ],
    ids=["top", "group", "group without its kind", "20,000"],
)
def test_of_many_mistakes_twenty_and_a_count_are_told(
    change: dict[str, object], reader: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    settings = {**RIGHT, **change}
    path.write_text(json.dumps(settings))
    told = said(reader, path)
    assert len(told) == 21
    number = 20_000 if "generator" in change else 2_001 if "schedule" in str(change) else 2_000
    assert told[-1].endswith(f"has {number - 20:,} more mistakes; fix these first")
    assert sum(map(len, told)) < 20 * 400


def test_twenty_are_all_told_and_a_long_name_is_cut(
    reader: subprocess.Popen[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**RIGHT, **{f"setting_{number}": 1 for number in range(20)}}))
    assert len(said(reader, path)) == 20
    path.write_text(yaml.safe_dump({**RIGHT, "x" * 100_000: 1}))
    (told,) = said(reader, path)
    assert len(told) < 500


def test_aliases_of_a_few_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    settings = {key: value for key, value in RIGHT.items() if key not in ("seed", "budget")}
    path.write_text("seed: &number 7\nbudget: {steps: *number}\n" + yaml.safe_dump(settings))
    assert load_run_config(path).budget.steps == 7
