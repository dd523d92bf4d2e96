"""`rollcast init`: a run file that passes, asked for or from flags; what it shows is what the run
will do.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.datasets import JsonlDataset
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.config.tasks import Evaluation, Tasks
from rollcast.config.verifiers import FunctionVerifier
from rollcast.local.first_run.inspection import NOT_HERE, look_at, model_in_words
from rollcast.local.first_run.run_file import Answers, run_file_text
from rollcast.local.first_run.shown import examples
from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_8B
from tests.cli import command
from tests.cli.mistakes import CAUSAL, lines

CHAT = [
    {"role": "system", "content": "Answer with a number."},
    {"role": "user", "content": "6 x 7?"},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CAUSAL))
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\0" * 64)
    (tmp_path / "rows.jsonl").write_text(
        lines(*({"question": f"{n} + 1?", "answer": n + 1} for n in range(1, 21)))
    )
    (tmp_path / "reward.py").write_text(
        "def grade(completion, row):\n    return float(completion == "
        "row['reward_model']['ground_truth'])\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_from_flags_it_writes_a_file_that_passes_and_shows_what_the_verifier_says(
    folder: Path,
) -> None:
    given = ("--model", "model", "--data", "rows.jsonl", "--verifier", "exact", "--budget", "120")
    done = command.rollcast("init", "my first.yaml", *given)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == [
        "data: prompts are in 'question', answers in 'answer'",
        "my first.yaml: written and valid",
        "model: Qwen3ForCausalLM, 64 B of weights, context of 512 tokens",
    ]
    verdicts = [line.strip() for line in said if " -> " in line]
    assert [line.rpartition(" -> ")[2] for line in verdicts] == [
        "reward 1",
        "reward 0",
        "reward 0",
    ] * 3
    assert verdicts[2] == "(nothing) -> reward 0"
    assert "none of the 4 held-out prompts is among the 16 trained on" in said
    written = yaml.safe_load((folder / "my first.yaml").read_text())
    assert written == {
        "run": "my-first",
        "model": {"path": "model"},
        "tasks": {
            "dataset": {
                "kind": "jsonl", "name": "rows", "path": "rows.jsonl", "prompt_field": "question",
                "verifier": "exact"
            },
            "evaluation": {"every_steps": 10},
        },
        "budget": {"steps": 120},
    }  # fmt: skip
    assert command.rollcast("config", "check", "my first.yaml").returncode == 0


@pytest.mark.parametrize("trusted", [False, True])
def test_chats_with_a_function_of_ones_own_and_a_budget_in_hours(
    folder: Path, trusted: bool
) -> None:
    """verl's rows, with a name that YAML would misread."""
    rows = [
        {
            "prompt": [CHAT[0], {"role": "user", "content": f"{n} x 7?"}],
            "reward_model": {"ground_truth": str(7 * n)},
        }
        for n in range(20)
    ]
    (folder / "yes: #1.jsonl").write_text(lines(*rows))
    given = [
        "--model",
        "./model",
        "--data",
        "yes: #1.jsonl",
        "--verifier",
        "./reward.py:grade",
        "--budget",
        "0.5h",
    ]
    done = command.rollcast("init", "chats.yaml", *given, *(["--trusted"] if trusted else []))
    assert done.returncode == 0, done.stderr
    config = load_run_config(folder / "chats.yaml", to_start=True)
    assert config.budget.device_hours == 0.5
    assert config.tasks.evaluation.every_steps == 10, (
        "of a run of unknown length: its curve has points soon"
    )
    (part,) = config.tasks.parts
    assert part.dataset.verifier == ("mine" if trusted else "./reward.py:grade")  # type: ignore[union-attr]
    assert config.tasks.verifiers == (
        (FunctionVerifier(name="mine", code="./reward.py:grade", trusted=True),) if trusted else ()
    )
    assert [line.rpartition(" -> ")[2] for line in done.stdout.splitlines() if " -> " in line] == [
        "reward 1", "reward 0", "reward 0",
    ] * 3  # fmt: skip


@pytest.mark.parametrize(
    ("verifier", "right"), [("arithmetic", "|3"), ("countdown", None), ("exact", "3")]
)
def test_a_right_answer_is_shown_as_its_verifier_wants_it(
    tmp_path: Path, verifier: str, right: str | None
) -> None:
    (tmp_path / "rows.jsonl").write_text(
        lines(*({"prompt": f"{n}", "answer": 3 if verifier != "countdown" else {"numbers": [n, 2],
            "target": n + 2}}
                for n in range(4)))
    )  # fmt: skip
    dataset = JsonlDataset(name="d", path=tmp_path / "rows.jsonl", verifier=verifier)
    said = list(examples(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1))))
    verdicts = [line.strip() for line in said if not line.startswith("prompt: ")]
    shown = [
        *([] if right is None else [f"{right} -> reward 1"]),
        "no idea -> reward 0",
        "(nothing) -> reward 0",
    ]
    assert verdicts == shown * 3


@pytest.mark.parametrize("verifier", ["math", "./reward.py:grade"])
def test_a_published_set_is_named_by_its_mapping(verifier: str) -> None:
    look = look_at("openai/gsm8k", None, None)
    assert (look.suits, look.in_words) == ("math", "the mapping gsm8k knows its fields")
    text = run_file_text(
        Answers(
            "r", "Qwen/Qwen3-0.6B", look, verifier, trusted=False, steps=None, device_hours=None
        )
    )
    dataset = yaml.safe_load(text)["tasks"]["dataset"]
    own = {} if verifier == "math" else {"verifier": verifier}
    assert dataset == {"kind": "huggingface", "name": "gsm8k", "mapping": "gsm8k"} | own
    assert parse_run_config(yaml.safe_load(text), source="init", to_start=True).budget.endless


@pytest.mark.parametrize(
    ("steps", "every", "said"),
    [
        (200, 17, "12 points of the curve"),
        (20, 2, "10 points of the curve"),
        (5, 1, "5 points of the curve, from held-out prompts\n"),
        (1, 1, "1 point of the curve, from held-out prompts; a forecast takes 5\n"),
    ],
)
def test_the_file_says_how_many_points_its_curve_will_have(
    folder: Path, steps: int, every: int, said: str
) -> None:
    look = look_at("rows.jsonl", None, None)
    text = run_file_text(
        Answers("r", "model", look, "exact", trusted=False, steps=steps, device_hours=None)
    )
    assert f"every_steps: {every}" in text
    assert said in text
    evaluated = {step for step in range(1, steps + 1) if step % every == 0} | {steps}
    assert said.split()[0] == str(len(evaluated)), "and one at the end"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (QWEN3_8B, "8.19 B parameters, context of 40,960 tokens"),
        ({"model_type": "gpt2", "n_positions": 1024}, "context of 1,024 tokens"),
        ({}, "its config.json says neither class nor size"),
    ],
)
def test_a_model_is_told_by_kind_size_and_context(
    tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    """8.19 billion is what the model's authors publish."""
    if settings == QWEN3_8B:
        write_model(tmp_path, settings)
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert model_in_words(str(tmp_path)) == said
    assert model_in_words(str(tmp_path / "nowhere")) == NOT_HERE


def test_a_file_that_would_be_wrong_is_not_left_behind(folder: Path) -> None:
    given = (
        "--model",
        "model",
        "--data",
        "rows.jsonl",
        "--verifier",
        "./reward.py:grade",
        "--budget",
        "10",
    )
    said = command.refusal("init", "new.yaml", *given)
    assert "KeyError: 'reward_model'" in said
    assert not (folder / "new.yaml").exists()


def test_on_a_terminal_it_asks_and_offers_what_suits(folder: Path) -> None:
    """A real terminal: the answers are typed, and what is wrong is asked again."""
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text(json.dumps({"architectures": ["BertForMaskedLM"]}))
    own, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rollcast.cli.main", "init", "asked.yaml"],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=folder,
    ) as process:
        os.close(its)
        seen = b""
        for question, answer in (
            (b"model (", b"bert"),
            (b"model (", b"./modle"),
            (b"model (", b"model"),
            (b"data (", b"row.jsonl"),
            (b"data (", b"rows.jsonl"),
            (b"verifier (", b"mathh"),
            (b"verifier (", b"exact"),
            (b"budget (", b"soon"),
            (b"budget (", b""),
        ):
            seen += until(own, question)
            os.write(own, answer + b"\n")
        seen += until(own, b"next: rollcast try --config asked.yaml")
        assert process.wait(timeout=60) == 0
    os.close(own)
    for said in (
        b"not a causal language",
        b"config.json cannot be read",
        b"row.jsonl: cannot be read",
        b"neither built in nor",
        b"is not a budget",
    ):
        assert said in seen
    assert load_run_config(folder / "asked.yaml", to_start=True).budget.steps == 200


def until(terminal: int, wanted: bytes) -> bytes:
    """What the terminal shows, up to the question."""
    seen, deadline = b"", time.monotonic() + 60.0
    while wanted not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1.0)[0]:
            seen += os.read(terminal, 4096)
    return seen
