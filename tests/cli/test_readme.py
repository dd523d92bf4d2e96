"""The command of the README that gives advice does what stands beside it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollcast.cli.main import app

README = Path(__file__).parents[2] / "README.md"


def test_the_command_for_advice_gives_advice_with_its_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = [
        line
        for line in README.read_text().splitlines()
        if "rollcast fit" in line and "--price" in line
    ]
    command = shlex.split(line, comments=True)
    assert command[:3] == ["rollcast", "fit", "curve.csv"]
    rows = "".join(
        f"{c},{0.2 + 0.5 / (1 + (900 / c) ** 1.8) + 0.004 * (-1) ** (c // 100)}\n"
        for c in range(100, 4100, 100)
    )
    (tmp_path / "curve.csv").write_text(f"gpu_hours,accuracy\n{rows}")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command[1:])
    assert result.exit_code == 0, result.output
    said = result.stdout.splitlines()
    assert said[0].split(".")[0].split(" for ")[0] in ("Stop", "Continue", "Wait")
    assert "0.01 or more with a chance of" in said[0]
    assert said[1].startswith("If ") or "would" in said[1], "what would change it"
    (rest,) = [line for line in said if line.startswith("rest of the budget: ")]
    assert rest.startswith("rest of the budget: 4000 GPU-hours for 10,000, gain ")
