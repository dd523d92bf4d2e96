"""Consoles in which models' printed answers are between the lines of the loop: the loop's readings
and nothing else.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rollcast.config.curve_sources import CurveFile
from rollcast.curves.columns.choices import Columns
from rollcast.curves.sources.file import CurveFileReader
from testkit.formats.history import read_history

STEPS = range(10, 210, 10)
RATES = {step: round(0.2 + step / 500 + 0.01 * (step % 30 == 0), 4) for step in STEPS}

LOOPS = {
    "brackets": "[step {s}] avg_loss=-0.01 acc={r}",
    "a bar of tqdm": (
        "Training:  12%|█▏        | {s}/200 [01:10<10:00,  2.1s/it, loss=0.1, acc={r}]"
    ),
    "dicts": "{{'loss': 0.1, 'grad_norm': 0.3, 'acc': {r}, 'step': {s}}}",
    "key=value": "step={s} loss=0.1 kl=0.02 acc={r}",
    "bars": "step {s}/200 | loss: 0.10 | acc: {r} | lr: 1e-06",
    "a time before": "2026-03-02 10:{m:02}:00,000 - train - INFO - step {s}: loss 0.1, acc {r}",
    "a rank before": "[rank0]: Step {s}: loss=0.1 acc={r}",
    "a process of Ray before": "(Trainer pid=1{m:02}) step {s} - loss: 0.1 - acc: {r}",
    "iterations": "Iteration {s} | mean reward 1.5 | acc {r}",
    "words": "After step {s} of 200 (eta 0:{m:02}:10), the accuracy on 50 problems: acc = {r}",
    "evaluations apart": "step {s} | loss: 0.1 | kl: 0.02\n[eval] step {s}: acc={r}",
    "evaluations late": (
        "step {s} | loss: 0.1 | kl: 0.02\nstep {n} | loss: 0.1 | kl: 0.02\neval @ step {s}: acc={r}"
    ),
    "padded steps": "Iter {s:5d} | loss 0.1000 | acc {r:.4f} | kl 0.02",
    "padded behind a colon": "step:   {s} loss: 0.1 acc: {r}",
    "evaluations without a step": "step {s} | loss: 0.1 | reward: 0.7\neval accuracy: {r}",
    "no marks": "iteration {s} acc {r} loss 0.1",
    "JSON": '{{"step": {s}, "loss": 0.1, "acc": {r}}}',
    "JSON behind a prefix": 'INFO:train:{{"step": {s}, "loss": 0.1, "acc": {r}}}',
}
"""Form -> the line of a step `s` with its rate `r`; `m` counts lines, `n` is a later step."""

ANSWERS = {
    "numbered steps": (
        "* Step 1: They plant 6 beds * 10 rows per bed = 60 rows.\n* Step 2: {a} + {b} = 77 rows."
    ),
    (
        "numbered steps of equal words"
    ): "Step 1: x = {a}\nStep 2: x = {b}\nStep 3: x = 9\nStep 4: x = 1",
    "eight numbered steps of equal words": "\n".join(
        f"Step {n}: total = {{a}}" for n in range(1, 9)
    ),
    "scores of steps": "Step 1: score = 0.{a}\nStep 2: score = 0.{b}\nStep 3: score = 0.5",
    "fractions": (
        "(3/8) * 320 loaves = 120 loaves\n* 30% of 700 pears = (30/100) * 700 pears = 210 pears"
    ),
    "fractions of all kinds": "({a}/100) * 320 loaves = {b} loaves and 1/4 of them = 3",
    "epochs of another training": "\n".join(
        f"Epoch {n}/3: loss=0.{9 - 3 * n} acc=0.{3 * n}" for n in range(1, 4)
    ),
    "steps of another training": "So at step 999: accuracy = 0.99\nand at step {b}: acc = 0.0{a}",
    "a bar of progress": (
        "Generating:  40%|████      | 2/5 [00:02<00:03, 1.1s/it]\nEvaluating: 3/10 [00:03, "
        "acc=0.667]"
    ),
    "a bar of a whole evaluation": "\n".join(
        f"Evaluating: {n}/9 [00:0{n}, acc=0.{n}67]" for n in range(1, 10)
    ),
    "JSON": (
        '{{"answer": {a}, "score": 0.{b}}}\n{{"step": 1, "acc": 0.3, "text": "Step 7: acc = 0.1"}}'
    ),
    "JSON of several lines": '{{\n  "step": 3, "acc": 0.25,\n  "answer": {a}\n}}',
    "a block of code": (
        "```python\nfor step in range(9):\n  acc = 0.9\nepoch = 3; acc = 0.5\nstep = 4; "
        "acc=0.75\n```"
    ),
    "tables": "| step | acc |\n|---|---|\n| 1 | 0.9{a} |\nstep 2 | acc: 0.8",
    "graded answers": (
        "Question: How many?\nAnswer: {a}\nExtracted: {b}\nreward is -1.1, length = 200"
    ),
    "plans": (
        "Batch 1: mix 3 eggs: cost = {a}\nBatch 2: bake: cost = {b}\nRollout 3/8: reward = 0.{a}"
    ),
}
"""Kind -> a printed answer with two numbers, `a` and `b`."""

WITHOUT_MARKS = {
    "steps": "Step 1 score 0.{a} cost 7\nStep 2 score 0.{b} cost 7\nStep 3 accuracy 0.5 cost 7",
    "eight steps": "\n".join(f"Step {n} score 0.{{a}} cost {n}" for n in range(1, 9)),
}
"""Of lines such as a loop without marks prints. They are not drawn among all kinds, where other
seeds fail as well."""


def log_of(loop: str, answers: list[str], per_step: int = 3, seed: int = 0) -> str:
    """The lines of a loop, and some printed answers before each of them."""
    random_numbers = random.Random(seed)
    lines = ["no adapter given; start from the base model", "=== Epoch 1/2 ==="]
    for place, step in enumerate(STEPS):
        for _ in range(per_step):
            answer = random_numbers.choice(answers)
            lines.append(
                answer.format(a=random_numbers.randint(1, 99), b=random_numbers.randint(1, 99))
            )
        lines.append(loop.format(s=step, r=RATES[step], m=place, n=step + 5))
    return "\n".join(lines) + "\n"


def assert_read(text: str, path: Path) -> None:
    path.write_text(text)
    history = read_history(str(path), Columns(), None)
    assert {int(point.compute): point.pass_rate for point in history.evaluations} == RATES, (
        history.origin
    )
    live = CurveFileReader(CurveFile(run="live", path=path)).read()
    assert [point.pass_rate for point in live.evaluations] == list(RATES.values())


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize(
    "loop", ["brackets", "evaluations apart", "a bar of tqdm", "no marks", "JSON"]
)
def test_answers_of_a_kind_are_no_readings(kind: str, loop: str, tmp_path: Path) -> None:
    assert_read(log_of(LOOPS[loop], [ANSWERS[kind]]), tmp_path / "train.log")


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("per_step", "seed"), [(1, 2), (3, 1), (3, 2), (3, 6), (5, 6)])
def test_a_loop_is_read_among_answers_of_all_kinds(
    loop: str, per_step: int, seed: int, tmp_path: Path
) -> None:
    """Draws in which steps of a few answers rise by chance, and bars of progress stand at several
    places.
    """
    assert_read(log_of(LOOPS[loop], list(ANSWERS.values()), per_step, seed), tmp_path / "train.log")


@pytest.mark.parametrize("kind", WITHOUT_MARKS)
@pytest.mark.parametrize("loop", LOOPS)
def test_answers_without_marks_are_no_readings(kind: str, loop: str, tmp_path: Path) -> None:
    assert_read(log_of(LOOPS[loop], [WITHOUT_MARKS[kind]]), tmp_path / "train.log")


@pytest.mark.parametrize("num_readings", [3, 6])
def test_one_long_answer_among_few_readings_is_none(num_readings: int, tmp_path: Path) -> None:
    """It counts to more steps than the loop."""
    answer = "\n".join(f"Step {step}: score = 0.{step:02}" for step in range(1, 15))
    lines = log_of(LOOPS["brackets"], ["Half the baskets are red."]).split("\n")
    readings = [line for line in lines if line.startswith("[step")][:num_readings]
    path = tmp_path / "train.log"
    path.write_text("\nThe sky is blue.\n".join([readings[0], answer, *readings[1:]]) + "\n")
    history = read_history(str(path), Columns(), None)
    assert [point.step for point in history.evaluations] == list(STEPS)[:num_readings]


@pytest.mark.parametrize("delay", [0, 30])
def test_evaluations_at_irregular_steps_are_readings(delay: int, tmp_path: Path) -> None:
    """An evaluator of its own takes checkpoints as they come, at steps that the loop does not
    print.
    """
    steps = [13, 57, 91, 142, 188, 231, 301, 333]
    lines = []
    for step in range(0, 400, 10):
        lines.append(f"step={step} loss=0.1 entropy=0.3")
        lines.extend(
            f"evaluator: step={at} accuracy=0.{at}"
            for at in steps
            if step <= at + delay < step + 10
        )
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    assert [point.step for point in read_history(str(path), Columns(), None).evaluations] == steps
