"""Run files that are made to take time, memory or the whole screen: one short answer each, by a bounded process."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollcast.config.run import load_run_config
from tests.config.wrong_run_files import RIGHT

MEMORY_BYTES = 2 << 30
CPU_SECONDS = 30
READ = """
import sys
from pathlib import Path
from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
try:
    load_run_config(Path(sys.argv[1]))
except UserError as error:
    print(error)
"""


def said(path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False, preexec_fn=_limit,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.splitlines()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


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
def test_what_is_no_run_file_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    (told,) = said(path)
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
def test_of_many_mistakes_twenty_and_a_count_are_told(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    settings = {**RIGHT, **change}
    path.write_text(yaml.safe_dump(settings))
    told = said(path)
    assert len(told) == 21
    number = 20_000 if "generator" in change else 2_001 if "schedule" in str(change) else 2_000
    assert told[-1].endswith(f"has {number - 20:,} more mistakes; fix these first")
    assert sum(map(len, told)) < 20 * 400


def test_twenty_are_all_told_and_a_long_name_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**RIGHT, **{f"setting_{number}": 1 for number in range(20)}}))
    assert len(said(path)) == 20
    path.write_text(yaml.safe_dump({**RIGHT, "x" * 100_000: 1}))
    (told,) = said(path)
    assert len(told) < 500


def test_aliases_of_a_few_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    settings = {key: value for key, value in RIGHT.items() if key not in ("seed", "budget")}
    path.write_text("seed: &number 7\nbudget: {steps: *number}\n" + yaml.safe_dump(settings))
    assert load_run_config(path).budget.steps == 7
