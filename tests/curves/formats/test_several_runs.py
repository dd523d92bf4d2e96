"""Logs in which steps go back: a restart joins its run, another run is listed, and each can be
chosen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_histories
from rollcast.curves.sources.file import CurveFileReader
from testkit.formats.history import read_history

Steps = Iterable[int]


def rate(step: float, gain: float = 0.5) -> float:
    """A curve that begins at .2."""
    return round(0.2 + gain * step / (step + 60), 4)


def own(steps: Steps, gain: float) -> str:
    """Python's logging, with a line of training for each step."""
    lines = []
    for s in steps:
        lines += [
            (
                f"2026-03-02 00:{s % 60:02}:00,000 - train - INFO - rollout batch {s} generated, "
                "length: 256"
            ),
            (
                f"2026-03-02 00:{s % 60:02}:30,000 - train - INFO - step batch {s} done, eval_acc: "
                f"{rate(s, gain)}"
            ),
        ]
    return "\n".join(lines) + "\n"


def verl(steps: Steps, gain: float, name: str = "") -> str:
    head = f"(TaskRunner pid=1)  'experiment_name': '{name}',\n" if name else ""
    lines = [
        f"(TaskRunner pid=1) step:{s} - critic/score/mean:{rate(s, gain)} - actor/entropy:0.4"
        for s in steps
    ]
    return head + "\n".join(lines) + "\n"


def verl_with_evaluations(steps: Steps, gain: float) -> str:
    lines = []
    for s in steps:
        if s % 10:
            lines.append(f"step:{s} - critic/score/mean:0.5 - actor/entropy:0.4")
        elif s:
            lines.append(
                f"step:{s} - critic/score/mean:0.5 - val-core/x/acc/mean@1:{rate(s, gain)}"
            )
        else:
            lines.append(f"step:0 - val-core/x/acc/mean@1:{rate(s, gain)} - val-aux/x/len:1.0")
    return "\n".join(lines) + "\n"


def prime_rl(steps: Steps, gain: float) -> str:
    return "".join(
        f"12:00:00 SUCCESS Step {s} | Time: 3.1s | Reward: {rate(s, gain)} | Val. x: 1\n"
        for s in steps
    )


def trl(steps: Steps, gain: float) -> str:
    lines = [
        f"{{'loss': 0.1, 'grad_norm': 0.3, 'reward': {rate(s, gain)}, 'epoch': {s / 100:.2f}}}"
        for s in steps
    ]
    return "Loading checkpoint shards: 100%\n" + "\n".join(lines) + "\n"


def pairs(steps: Steps, gain: float) -> str:
    return "".join(f"step={s} loss=0.1 reward={rate(s, gain)}\n" for s in steps)


def bar(steps: Steps, gain: float) -> str:
    return "".join(
        f" 10%|█▏   | {s}/999 [00:10<01:00, 1.2s/it, loss=0.1, reward={rate(s, gain)}]\n"
        for s in steps
    )


def jsonl(steps: Steps, gain: float) -> str:
    return "".join(json.dumps({"step": s, "eval_acc": rate(s, gain)}) + "\n" for s in steps)


def jsonl_with_training(steps: Steps, gain: float) -> str:
    lines = []
    for s in steps:
        lines.append({"step": s, "loss": 0.1})
        if s % 10 == 0:
            lines.append({"step": s, "eval_acc": rate(s, gain)})
    return "".join(json.dumps(line) + "\n" for line in lines)


FORMS: dict[str, Callable[[Steps, float], str]] = {
    "own": own, "verl": verl, ("verl with "
        "evaluations"): verl_with_evaluations, "prime-rl": prime_rl, "TRL": trl,
    "key=value": pairs, "tqdm": bar, "JSONL": jsonl, "JSONL with training": jsonl_with_training,
}  # fmt: skip
TENS = range(10, 210, 10)

RESUMED: dict[str, list[Steps]] = {
    "once": [range(10, 110, 10), range(80, 210, 10)],
    "twice": [range(10, 110, 10), range(80, 150, 10), range(120, 210, 10)],
    "soon": [range(10, 50, 10), range(30, 210, 10)],
    "by one step": [range(10, 110, 10), range(100, 210, 10)],
    "after a long time": [range(10, 190, 10), range(60, 210, 10)],
    "without overlap": [range(10, 110, 10), range(110, 210, 10)],
}
"""How a run of the steps 10 to 200 was resumed."""


@pytest.mark.parametrize(
    ("form", "how"),
    # Of equal epochs, which are rounded, none is another's repetition.
    [(form, how) for form in FORMS for how in RESUMED if (form, how) != ("TRL", "by one step")],
)
def test_a_resumed_run_is_one(form: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(FORMS[form](steps, 0.5) for steps in RESUMED[how]))
    history = read_history(str(path), Columns(), None)
    scale = 100 if form == "TRL" else 1
    assert {round(item.compute * scale): item.pass_rate for item in history.evaluations} == {
        s: rate(s) for s in TENS
    }
    assert len(history.evaluations) == len(TENS)


@pytest.mark.parametrize("form", FORMS)
def test_runs_one_after_another_are_listed_and_each_can_be_chosen(
    form: str, tmp_path: Path
) -> None:
    """Of seeds, say: all begin at one level."""
    first = 0 if form in ("own", "JSONL", "verl with evaluations") else 10
    parts = [range(first, 110, 10), range(first, 210, 10), range(first, 30, 10)]
    path = tmp_path / "train.log"
    path.write_text(
        "".join(FORMS[form](steps, 0.5 + number / 10) for number, steps in enumerate(parts))
    )
    with pytest.raises(
        UserError,
        match=r"holds 3 runs one after another: 1 \(1\d readings.*choose one with --run N",
    ):
        read_history(str(path), Columns(), None)
    for number, steps in enumerate(parts):
        chosen = read_history(str(path), Columns(), str(number + 1))
        assert [item.pass_rate for item in chosen.evaluations] == [
            rate(s, 0.5 + number / 10) for s in steps
        ]
    same = read_history(str(path), Columns(where=("run=2",)), None)
    assert len(same.evaluations) == len(list(parts[1]))
    with pytest.raises(UserError, match="--run 7: holds no such run, but these: 1 "):
        read_history(str(path), Columns(), "7")
    live = CurveFileReader(CurveFile(run="live", path=path)).read()
    assert [item.pass_rate for item in live.evaluations] == [rate(s, 0.7) for s in parts[2]]


def test_the_runs_with_enough_readings_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        verl(range(1, 40), 0.5, "grpo-a")
        + verl(range(1, 4), 0.5, "oops")
        + verl(range(1, 30), 0.3, "dapo")
    )
    found = read_histories(str(path), Columns())
    assert [(history.name, len(history.evaluations)) for history in found] == [
        ("grpo-a", 39),
        ("dapo", 29),
    ]
    with pytest.raises(
        UserError, match=r"1 \(grpo-a, 39 readings, step 1 to 39\); 2 \(oops, 3 readings"
    ):
        read_history(str(path), Columns(), None)
    for wanted in ("dapo", "3"):
        assert read_history(str(path), Columns(), wanted).evaluations[-1].pass_rate == rate(29, 0.3)


@pytest.mark.parametrize("form", FORMS)
def test_the_newest_run_is_taken_if_no_other_has_enough_readings(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(FORMS[form](range(10, 40, 10), 0.5) + FORMS[form](TENS, 0.6))
    assert [item.pass_rate for item in read_history(str(path), Columns(), None).evaluations] == [
        rate(s, 0.6) for s in TENS
    ]
    told = capsys.readouterr().err
    assert (
        "3 evaluations left out, of steps that were made again after a restart from the beginning"
        in told
    )
    assert "--run N chooses one of 1 (3 readings" in told
    assert len(read_history(str(path), Columns(), "1").evaluations) == 3


def test_a_run_whose_first_steps_are_elsewhere_is_another_one_by_its_level(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{s},{rate(s)}" for s in TENS] + [
        f"{s},{0.05 + s / 4000:.3f}" for s in range(60, 210, 10)
    ]
    path.write_text("step,eval_acc\n" + "\n".join(rows) + "\n")
    with pytest.raises(UserError, match="holds 2 runs one after another"):
        read_history(str(path), Columns(), None)


def test_runs_that_begin_at_other_steps_are_runs(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    steps = [*range(0, 200, 20), *range(25, 200, 25), *range(1, 60)]
    path.write_text("step,eval_acc\n" + "".join(f"{s},{rate(s)}\n" for s in steps))
    with pytest.raises(UserError, match=r"holds 3 runs .* 2 \(7 readings, step 25 to 175\)"):
        read_history(str(path), Columns(), None)


def test_short_runs_are_runs_although_the_step_falls_in_a_third_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{s},{rate(s)}\n" for _ in range(6) for s in (0, 10, 20)]
    path.write_text("step,eval_acc\n" + "".join(rows))
    assert len(read_history(str(path), Columns(), None).evaluations) == 3
    assert len(read_history(str(path), Columns(), "2").evaluations) == 3


def test_steps_of_each_epoch_without_its_number_are_counted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{s},{rate(200 * epoch + s)}\n" for epoch in range(3) for s in TENS]
    path.write_text("step,eval_acc\n" + "".join(rows))
    history = read_history(str(path), Columns(), None)
    assert [item.step for item in history.evaluations] == list(range(10, 610, 10))
    assert "step begins again 3 times while the level goes on" in capsys.readouterr().err


@pytest.mark.parametrize(("names", "end"), [(("small", "large"), 200), (("", ""), 300)])
def test_a_run_that_begins_at_the_last_ones_level_is_another_by_its_name_or_length(
    names: tuple[str, str], end: int, tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    later = "".join(
        f"step:{s} - critic/score/mean:{0.55 + s / 2000} - actor/entropy:0.4\n"
        for s in range(0, end, 10)
    )
    path.write_text(
        verl(range(0, 200, 10), 0.5, names[0]) + verl([], 0.5, names[1]).lstrip("\n") + later
    )
    with pytest.raises(UserError, match="holds 2 runs one after another"):
        read_history(str(path), Columns(), None)


def test_seeds_in_one_console_are_runs_with_their_names(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "".join(f"=== seed {seed} ===\n" + pairs(TENS, seed / 10) for seed in (3, 4, 5))
    )
    with pytest.raises(UserError, match=r"1 \(seed 3, 20 readings, step 10 to 200\); 2 \(seed 4,"):
        read_history(str(path), Columns(), None)
    assert read_history(str(path), Columns(), "seed 5").evaluations[-1].pass_rate == rate(200, 0.5)


def test_an_evaluation_that_is_printed_late_ends_nothing(tmp_path: Path) -> None:
    """Rows of another measure come late too, and take no evaluation with them."""
    rows: list[dict[str, float]] = []
    for s in range(1, 101):
        rows.append({"step": s, "loss": 0.1})
        if s % 10 == 0:
            rows.append({"step": s, "eval_acc": rate(s)})
        if s % 10 == 5 and s > 10:
            rows.append({"step": s - 5, "bleu": 0.3})
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [item.step for item in read_history(str(path), Columns(), None).evaluations] == list(
        range(10, 110, 10)
    )
