"""Where a reading is in its run: epochs with a counter of their own, headings with answers below,
and stray lines.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.sources.file import CurveFileReader
from testkit.formats.history import read_history

PLACES = [(epoch, at) for epoch in range(1, 6) for at in (250, 500, 750, 1000)]
RATES = [round(0.2 + 0.5 * n / (n + 8), 4) for n in range(len(PLACES))]
EVERY = [(epoch, at, rate) for (epoch, at), rate in zip(PLACES, RATES, strict=True)]
STEPS = [1000 * (epoch - 1) + at for epoch, at in PLACES]


def lines(form: str) -> str:
    return "".join(form.format(e=e, i=i, r=r, b=i // 250 - 1) + "\n" for e, i, r in EVERY)


def resumed(form: str) -> str:
    """A run that was killed in its third epoch and continued from the end of the second one."""
    rows = lines(form).splitlines(keepends=True)
    return "".join(rows[:10] + rows[8:])


OF_EPOCHS: dict[str, tuple[str, list[int]]] = {
    "lines": (lines("Epoch {e} iter {i}: eval_acc={r}"), STEPS),
    "lines of training between": (
        "".join(
            f"Epoch {e} iter {i - 125}: loss=0.1\nEpoch {e} iter {i}: loss=0.2\n"
            f"Epoch {e} iter {i}: eval_acc={r}\n"
            for e, i, r in EVERY
        ),
        STEPS),
    "brackets": (lines("Epoch [{e}/5], Step [{i}/1000], Loss: 0.1, Acc: {r}"), STEPS),
    "JSON": (lines('{{"epoch": {e}, "step": {i}, "eval_acc": {r}}}'), STEPS),
    "a table of batches": ("epoch,batch,eval_acc\n" + lines("{e},{i},{r}"), STEPS),
    "batches from 0 on": ("epoch,batch_idx,accuracy\n" + lines("{e},{b},{r}"), list(range(20))),
    "resumed": ("epoch,step,eval_acc\n" + resumed("{e},{i},{r}"), STEPS),
    "steps of the whole run": (
        "epoch,step,eval_acc\n" + "".join(f"{e},{1000 * (e - 1) + i},{r}\n" for e, i, r in EVERY),
        STEPS),
    "steps that begin at 0 without an epoch": ("step,eval_acc\n" + lines("{b},{r}"),
        list(range(20))),
}  # fmt: skip
"""Form -> a log with four readings in each of five epochs, and the steps of its readings."""


@pytest.mark.parametrize("kind", OF_EPOCHS)
def test_readings_of_an_epoch_stay_apart(kind: str, tmp_path: Path) -> None:
    text, steps = OF_EPOCHS[kind]
    path = tmp_path / "train.log"
    path.write_text(text)
    history = read_history(str(path), Columns(), None)
    assert [point.compute for point in history.evaluations] == steps
    assert [point.pass_rate for point in history.evaluations] == RATES
    assert {point.standard_error for point in history.evaluations} == {None}
    live = CurveFileReader(CurveFile(run="live", path=path)).read()
    assert {point.step: point.pass_rate for point in live.evaluations} == dict(
        zip(steps, RATES, strict=True)
    )


def test_readings_of_an_epoch_stay_apart_over_epochs(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("epoch,step,eval_acc\n" + lines("{e},{i},{r}"))
    history = read_history(str(path), Columns(compute="epoch"), None)
    assert [point.pass_rate for point in history.evaluations] == RATES


def test_rounded_epochs_are_no_key_of_readings(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(
            f"{{'reward': {r}, 'epoch': {0.01 + n // 4 / 100:.2f}}}\n" for n, r in enumerate(RATES)
        )
    )
    assert [
        point.pass_rate for point in read_history(str(path), Columns(), None).evaluations
    ] == RATES


def below_headings(heading: str, reading: str, *answers: str, per_step: int = 3) -> str:
    """A heading, some of the answers, and then the reading of each step."""
    dice = random.Random(5)
    text = ""
    for step, rate in zip(STEPS, RATES, strict=True):
        text += heading.format(s=step) + "\n"
        for _ in range(per_step):
            text += dice.choice(answers).format(a=dice.randint(1, 99), b=dice.randint(1, 99)) + "\n"
        text += reading.format(r=f"{rate}"[1:]) + "\n"
    return text


HEADING = "=== step {s} ==="
BELOW_HEADINGS = {
    "prose": (HEADING, "accuracy: {r}", "The answer is {a}.", "accuracy is the share of {a}: {b}"),
    "steps with measures": (HEADING, "accuracy: {r}", "step {a}: acc=.{b}",
        "I think it is {a}: no {b}"),
    "another training": (HEADING, "accuracy: {r}", "Epoch {a}/100: loss=0.3 acc=0.{b}",
        "step={a} acc=0.{b}"),
    "numbered steps": (HEADING, "accuracy: {r}",
        "Step 1: total = {a}\nStep 2: total = {b}\nStep 3: score = 0.{a}"),
    "scores": (HEADING, "accuracy: {r}", "The score: {a}/100", "reward = {a}, so x = {b}"),
    "a better measure": ("--- Iteration {s} ---", "mean reward: {r}",
        "for step in range({a}): x = {b}", "score=0.{a}, accuracy=0.{b}"),
    "the same measure": ("## Step {s}/5000", "accuracy: {r}", "{a}/{b} = 3: yes",
        "accuracy: {a} of {b}"),
    "two readings": ("Step {s}", "eval accuracy = {r}\nloss = 0.3",
        "Step 1: add {a}\nStep 2: times {b} = {a}"),
}  # fmt: skip
"""Kind -> the heading of a step, the reading below it, and the answers between them."""


@pytest.mark.parametrize("kind", BELOW_HEADINGS)
def test_readings_below_headings_are_read_among_answers(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(below_headings(*BELOW_HEADINGS[kind]))
    history = read_history(str(path), Columns(), None)
    assert {point.step: point.pass_rate for point in history.evaluations} == dict(
        zip(STEPS, RATES, strict=True)
    )


LINE = "step {s}: acc={r}\n"
WITH_STRAYS: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "one": (lambda rows: [*rows[:10], LINE.format(s=3, r=0.1), *rows[10:]], "1 row left out"),
    "three": (lambda rows: [*rows[:10], *(LINE.format(s=s, r=0.1) for s in (3, 4, 5)), *rows[10:]],
        "3 rows left out"),
    "falling": (lambda rows: [*rows[:10], *(LINE.format(s=s, r=0.1) for s in (9, 3)), *rows[10:]],
        "2 rows left out"),
    "two places": (
        lambda rows: [
            *rows[:6],
            LINE.format(s=3, r=0.1),
            *rows[6:14],
            LINE.format(s=700, r=0.9),
            *rows[14:],
        ],
        "2 rows left out"),
    "a restart by two readings": (lambda rows: [*rows[:10], *rows[8:]],
        "2 evaluations left out, of steps that were"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WITH_STRAYS)
@pytest.mark.parametrize("is_json", [False, True])
def test_stray_lines_begin_nothing(
    kind: str, is_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, sentence = WITH_STRAYS[kind]
    rows = change([LINE.format(s=s, r=r) for s, r in zip(STEPS, RATES, strict=True)])
    if is_json:
        pairs = [row.removeprefix("step ").split(": acc=") for row in rows]
        rows = [json.dumps({"step": int(step), "acc": float(rate)}) + "\n" for step, rate in pairs]
    path = tmp_path / "train.log"
    path.write_text("".join(rows))
    history = read_history(str(path), Columns(), None)
    assert {point.step: point.pass_rate for point in history.evaluations} == dict(
        zip(STEPS, RATES, strict=True)
    )
    assert sentence in capsys.readouterr().err


def test_a_run_of_longer_intervals_is_no_stray_line(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    steps = [*range(0, 310, 10), *range(0, 5500, 500)]
    path.write_text("step,eval_acc\n" + "".join(f"{s},{s / 6000}\n" for s in steps))
    assert len(read_history(str(path), Columns(), "2").evaluations) == 11


def of_epochs(form: str) -> str:
    """One line or more for each epoch, with the rate of its readings so far."""
    return "".join(form.format(e=epoch, r=rate) + "\n" for epoch, rate in enumerate(RATES, 1))


FOREIGN: dict[str, tuple[str, str, list[int]]] = {
    "DCGAN": (lines("[{e}/5][{i}/1000] loss: 0.3 acc: {r}"), "acc", STEPS),
    "ImageNet of PyTorch": (lines("Epoch: [{e}][{i:4d}/1000]\tLoss: 2.1 (2.2)\tacc: {r}"), "acc",
        STEPS),
    "tqdm with epochs": (
        lines("Epoch {e}/5:  50%|█████     | {i}/1000 [00:10<00:10, 9.8it/s, acc={r}]"), "acc",
        STEPS),
    "Keras": (
        of_epochs(
            "Epoch {e}/20\n100/100 [==============================] - 3s 30ms/step - loss: 0.3 "
            "- val_accuracy: {r}"
        ),
        "val_accuracy", list(range(1, 21))),
    "Lightning's bar": (
        of_epochs(
            "Epoch {e}: 100%|██████| 100/100 [00:10<00:00,  9.8it/s, v_num=0, train_loss=0.3, "
            "val_acc={r}]"
        ),
        "val_acc", list(range(1, 21))),
    "dicts": (lines("{{'epoch': {e}, 'batch': {i}, 'accuracy': {r}}}"), "accuracy", STEPS),
    "nested JSON": (
        lines('{{"epoch": {e}, "train": {{"step": {i}, "acc": 0.4}}, "val": {{"acc": {r}}}}}'),
        "val/acc", STEPS),
}  # fmt: skip
"""Logs in the forms of other tools: the text, the measure, the compute of each reading."""


@pytest.mark.parametrize("kind", FOREIGN)
def test_forms_of_other_tools_keep_every_reading(kind: str, tmp_path: Path) -> None:
    text, pass_rate, computes = FOREIGN[kind]
    path = tmp_path / "train.log"
    path.write_text(text)
    history = read_history(str(path), Columns(), None)
    assert history.origin.pass_rate == pass_rate
    assert [(point.compute, point.pass_rate) for point in history.evaluations] == list(
        zip(computes, RATES, strict=True)
    )


def test_passed_answers_of_an_evaluation_are_no_step(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(lines("[Epoch {e}, Batch {i}] eval: {b}/64 passed (loss 0.3)"))
    history = read_history(str(path), Columns(), None)
    assert [point.pass_rate for point in history.evaluations] == [n % 4 / 64 for n in range(20)]
    assert [point.compute for point in history.evaluations] == STEPS


def test_two_tries_with_epochs_are_no_continued_epochs(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        lines("Epoch {e} iter {i}: eval_acc={r}")
        + lines("Epoch {e} iter {i}: eval_acc={r}").replace("=0.", "=0.5")
    )
    with pytest.raises(UserError, match="holds 2 runs one after another"):
        read_history(str(path), Columns(), None)


QUESTIONS = {
    "batches and the whole of a validation": (
        lines("Epoch {e} | val batch {b}/4 | acc {r}\nEpoch {e} | val acc {r}1"),
        "eval/acc, val_acc could each be",
    ),
    "training and validation": (
        "epoch,batch,split,acc\n" + lines("{e},{i},train,{r}") + lines("{e},{i},val,{r}"),
        "split differs between rows",
    ),
    "two means of rewards": (
        "step,valid_reward,full_valid_mean_reward\n"
        + "".join(f"{s},0.2{s},0.3{s if s % 10 == 0 else ''}\n" for s in range(10, 90)),
        "valid_reward, full_valid_mean_reward could each be",
    ),
    "counts since the start": (
        "step,correct,total\n" + "".join(f"{s},{30 * s},{64 * s}\n" for s in range(1, 31)),
        "none of the columns",
    ),
    "words without marks": (
        "".join(f"INFO ep 1 it {s} loss 0.3 val_acc 20.0%\n" for s in STEPS),
        "the form of this log is not known",
    ),
    "sentences": (
        "".join(f"After {s} steps the model solves 2{s % 10}% of the problems\n" for s in STEPS),
        "the form of this log is not known",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", QUESTIONS)
def test_what_is_not_clear_is_asked(kind: str, tmp_path: Path) -> None:
    text, sentence = QUESTIONS[kind]
    path = tmp_path / "train.log"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_history(str(path), Columns(), None)


def test_a_held_out_accuracy_of_tokens_is_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.csv"
    rows = "".join(
        f"{s},1.1,0.{300 + s},{0.2 + s / 500 if s % 10 == 0 else ''}\n" for s in range(1, 201)
    )
    path.write_text("step,train_loss,train_accuracy,valid_mean_token_accuracy\n" + rows)
    assert read_history(str(path), Columns(), None).origin.pass_rate == "train_accuracy"
    assert "rows of evaluations hold valid_mean_token_accuracy" in capsys.readouterr().err
