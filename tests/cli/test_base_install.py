"""`pip install .` without an extra: the commands on curves work,
and what a picture needs is said.
"""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from requirements.closure import closure
from testkit.base_install import base_bytes
from testkit.forecaster.recorded_run import record
from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_1_7B
from tests.only_these import ROOT, hidden_modules, run_with_only

PROGRAM = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from rollcast.cli.main import main

answers = []
for arguments in json.loads(sys.argv.pop()):
    sys.argv[1:] = arguments
    code, out, errors = 0, StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    answers.append((code, out.getvalue(), errors.getvalue()))
print(json.dumps(answers))
"""
"""Many commands, one after the other: most of the time of each alone would go into imports."""
CURVES = [
    ["fit", "a.csv", "--target", "0.7"],
    ["compare", "a.csv", "b.csv"],
    ["compare", "a.csv", "b.csv", "--baseline", "a"],
    ["backtest", "a.csv", "--share", "0.5"],
    ["plan", "budget", "a.csv", "--budget", "2"],
    ["plan", "runs", "a.csv", "b.csv", "--budget", "5"],
    ["plan", "sizes", "1.7B=a.csv", "8B=b.csv", "--budget", "5"],
]
DEVICES = [
    "plan",
    "devices",
    "--devices",
    "4",
    "--step-seconds",
    "2",
    "--trainer-devices",
    "1",
    "--tokens-per-second",
]
DEVICES += [
    "3000",
    "--mean-tokens",
    "100",
    "--longest-tokens",
    "200",
    "--groups",
    "8",
    "--rollouts",
    "4",
]
DEVICES += ["--max-staleness", "2"]
COMMANDS = [*CURVES, DEVICES]
PICTURE = ["--plot", "picture.png"]


def base() -> set[str]:
    """Distributions of an installation without extras, by pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return closure(project["project"]["dependencies"])


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    for name, asymptote in (("a", 0.85), ("b", 0.75)):
        with (folder / f"{name}.csv").open("w") as file:
            rows = csv.writer(file)
            rows.writerow(("compute", "pass_rate"))
            rows.writerows(
                (reading.compute, reading.pass_rate) for reading in record(asymptote=asymptote)
            )
    return folder


class Answer(NamedTuple):
    code: int
    out: str
    errors: str


def answers_of(folder: Path, *commands: list[str]) -> dict[str, Answer]:
    """By the command's words, what each said where only the base is installed."""
    done = run_with_only(base(), PROGRAM, json.dumps(commands), timeout=300, cwd=folder)
    assert done.returncode == 0, done.stderr
    answers = [Answer(*answer) for answer in json.loads(done.stdout)]
    return {" ".join(words): answer for words, answer in zip(commands, answers, strict=True)}


@pytest.fixture(scope="module")
def answers(curves: Path) -> dict[str, Answer]:
    """Pictures first: that one cannot be drawn is said before anything is imported
    for the curves.
    """
    return answers_of(curves, *([*arguments, *PICTURE] for arguments in COMMANDS), *COMMANDS)


def test_what_makes_an_installation_large_is_not_in_it() -> None:
    assert {"torch", "transformers", "vllm", "matplotlib", "fastapi"} <= hidden_modules(base())


def test_the_base_is_small() -> None:
    assert base_bytes() < 250e6


def test_python_needs_nothing_more(curves: Path) -> None:
    program = "import rollcast; print(rollcast.forecast('a.csv').at(5)['q50'])"
    done = run_with_only(base(), program, timeout=120, cwd=curves)
    assert done.returncode == 0, done.stderr
    assert 0.5 < float(done.stdout) < 1


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_commands_on_curves_need_nothing_more(
    arguments: list[str], answers: dict[str, Answer]
) -> None:
    answer = answers[" ".join(arguments)]
    assert answer.code == 0, answer.errors
    assert answer.out


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_picture_says_what_it_needs_before_any_work(
    arguments: list[str], answers: dict[str, Answer]
) -> None:
    assert answers[" ".join([*arguments, *PICTURE])] == (
        2,
        "",
        (
            "error: --plot picture.png: matplotlib is not installed; install it: pip install "
            "'rollcast[plot]'\n"
        ),
    )


def test_memory_is_planned_from_headers_and_a_config_alone_names_the_remedy(tmp_path: Path) -> None:
    write_model(tmp_path / "model", QWEN3_1_7B)
    run = {"run": "r", "model": {"path": "model"}, "budget": {"steps": 1}}
    (tmp_path / "run.yaml").write_text(
        json.dumps(run | {"tasks": {"dataset": {"kind": "arithmetic"}}})
    )
    arguments = ["plan", "memory", "--config", "run.yaml", "--gpu", "80"]
    with_headers = answers_of(tmp_path, [*arguments, "--json"])
    assert (
        json.loads(with_headers[" ".join([*arguments, "--json"])].out)["parameters"]
        == 1_720_574_976
    )
    (tmp_path / "model" / "model.safetensors").unlink()
    assert answers_of(tmp_path, arguments)[" ".join(arguments)] == (
        2,
        "",
        "error: config.json: it alone does not give the shapes of the weights without "
        "Transformers; run "
        "pip install 'rollcast[trainer]', or give the folder with the model's safetensors files\n",
    )
