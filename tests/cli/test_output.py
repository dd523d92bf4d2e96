"""Standard output that cannot be written: a full disk is one sentence, a reader that has enough is
none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.cli.command import process, rollcast

FULL = Path("/dev/full")
CURVE = "compute,pass_rate\n" + "".join(f"{n},0.{n}\n" for n in range(1, 9))
RECOGNISED = "curve.csv: CSV: pass_rate over compute (device-hours)\n"
"""What a command that reads the curve says first: as what it read it."""
COMMANDS = [("config", "schema"), ("fit", "curve.csv")]
"""One that writes more than a buffer holds, and one that writes each sentence as soon as it has
it."""


def said_first(arguments: tuple[str, ...]) -> str:
    return RECOGNISED if "curve.csv" in arguments else ""


def into(
    output: IO[bytes], folder: Path, arguments: tuple[str, ...]
) -> subprocess.CompletedProcess[bytes]:
    (folder / "curve.csv").write_text(CURVE)
    return subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        cwd=folder,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")
@pytest.mark.parametrize("arguments", [("version",), *COMMANDS], ids=" ".join)
def test_a_full_disk_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with FULL.open("wb") as full:
        ended = into(full, tmp_path, arguments)
    sentence = (
        "standard output: cannot be written (No space left on device); free space, or send it "
        "elsewhere"
    )
    assert (ended.returncode, ended.stderr.decode()) == (
        1,
        f"{said_first(arguments)}error: {sentence}\n",
    )


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_reader_that_has_enough_is_no_word_worth(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """As `| head -1`, which may be gone before the first line is written."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        ended = into(pipe, tmp_path, arguments)
    assert (ended.returncode, ended.stderr.decode()) == (1, said_first(arguments))


@pytest.mark.skipif(not FULL.exists(), reason="this machine has no /dev/full")
def test_another_file_that_is_full_is_not_called_standard_output(tmp_path: Path) -> None:
    (tmp_path / "curve.csv").write_text(CURVE)
    (tmp_path / "fit.svg").symlink_to(FULL)
    ended = rollcast("fit", tmp_path / "curve.csv", "--plot", tmp_path / "fit.svg")
    assert ended.returncode != 0
    assert "No space left on device" in ended.stderr
    assert "standard output" not in ended.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_standard_output_is_no_mistake(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "curve.csv").write_text(CURVE)
    closing = [
        "sh",
        "-c",
        'exec "$@" >&-',
        "sh",
        sys.executable,
        "-m",
        "rollcast.cli.main",
        *arguments,
    ]
    ended = subprocess.run(closing, stderr=subprocess.PIPE, cwd=tmp_path, timeout=120, check=False)
    assert (ended.returncode, ended.stderr.decode()) == (0, said_first(arguments))


def test_a_letter_that_the_encoding_lacks_is_a_question_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "curve.csv").write_text(CURVE)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    planned = process("plan", "runs", tmp_path / "curve.csv", "--budget", 5)
    assert (planned.returncode, planned.stderr) == (0, f"{tmp_path}/{RECOGNISED}")
    assert re.search(r"0\.\d{3} \(0\.\d{3}\?[01]\.\d{3}\)", planned.stdout), planned.stdout


def test_what_is_written_is_what_is_read_letters_of_any_alphabet_too(tmp_path: Path) -> None:
    (tmp_path / "Lernkurve-ü.csv").write_text(CURVE)
    read = process("fit", tmp_path / "Lernkurve-ü.csv").stdout.splitlines()
    assert any(line.startswith("Lernkurve-ü: 8 evaluations, ") for line in read), read


def test_escape_codes_of_files_and_columns_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    """A curve, a refusal, and a question."""
    code = "\x1b]0;owned\x07\x1b[31m\u202e"
    header = f"step,{code}eval_acc,{code}test_acc\n"
    path = tmp_path / f"run{code}.csv"
    path.write_text("step,eval_acc\n" + "".join(f"{n},0.{n}\n" for n in range(1, 9)))
    asked = tmp_path / f"asked{code}.csv"
    asked.write_text(header + "".join(f"{n},0.{n},0.{9 - n}\n" for n in range(1, 9)))
    odd = tmp_path / "odd.jsonl"
    odd.write_text("".join(f'{{"step": {n}, "eval\\u001b[31m_acc": {n}.5}}\n' for n in range(1, 9)))
    for arguments in ((path,), (asked,), (odd,), (tmp_path / f"missing{code}",), (path, path)):
        command = "fit" if len(arguments) == 1 else "compare"
        result = rollcast(command, *arguments)
        shown = result.stdout + result.stderr
        assert shown
        assert not [letter for letter in shown if not letter.isprintable() and letter != "\n"], (
            shown
        )
