"""A column with fewer readings than a forecast needs hides no other; evaluations of unknown names
are mentioned.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from testkit.formats.history import read_history

STEPS = range(1, 61)


def table(names: dict[str, list[int]], training: str = "critic/score/mean") -> str:
    """A training column at each step, and others at some steps."""
    rows = [",".join(["step", training, *names])]
    for s in STEPS:
        cells = [
            str(round(s / 80 + number / 50, 4)) if s in at else ""
            for number, at in enumerate(names.values())
        ]
        rows.append(",".join([str(s), str(round(0.1 + s / 100, 3)), *cells]))
    return "\n".join(rows) + "\n"


FEW = [20, 40, 60]
HIDDEN = {
    "one set of three": ({"val-core/nq/acc/mean@1": FEW}, "critic/score/mean"),
    "one set of two": ({"eval/accuracy": FEW[1:]}, "critic/score/mean"),
    "one set of four": ({"test/accuracy": [15, *FEW]}, "critic/score/mean"),
    "one reading": ({"eval/accuracy": [60]}, "critic/score/mean"),
    "four sets of three": (
        {f"val-core/{name}/reward/mean@1": FEW for name in ("nq", "trivia", "pop", "hotpot")},
        "critic/score/mean",
    ),
    "sets of two and three": ({"eval/gsm8k": FEW, "eval/math": FEW[:2]}, "critic/score/mean"),
    "accuracies": ({"eval_acc": FEW}, "reward"),
    "rewards": ({"eval_reward": FEW}, "reward"),
    "parts": ({"eval/gsm8k/accuracy": FEW, "eval/math/accuracy": FEW}, "train/reward"),
    "a usual name": ({"accuracy": FEW}, "reward_mean"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HIDDEN)
def test_training_is_read_while_held_out_readings_are_too_few(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, training = HIDDEN[kind]
    path = tmp_path / "log.csv"
    path.write_text(table(names, training))
    history = read_history(str(path), Columns(), None)
    assert (history.origin.pass_rate, len(history.evaluations)) == (training, 60)
    told = capsys.readouterr().err
    assert (
        f"fewer than 5 readings after the start in {', '.join(names)}, so {training} is taken "
        "instead"
    ) in told


def test_five_readings_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(table({"eval/accuracy": [12, 24, 36, 48, 60], "test/accuracy": FEW}))
    assert read_history(str(path), Columns(), None).origin.pass_rate == "eval/accuracy"


def test_few_readings_alone_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(table({"eval/accuracy": FEW}, "loss"))
    assert len(read_history(str(path), Columns(), None).evaluations) == 3


UNKNOWN = {
    "held out by name": {"eval/bleu": FEW},
    "of a data set": {"math500": FEW, "aime24": FEW},
    "with a score of its own": {"val_f1": [10, 20, 30, 40, 50]},
    "several": {"test/rouge_l": FEW, "test/bleu": FEW, "humaneval_plus": FEW},
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_evaluations_of_unknown_names_are_mentioned(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are in rows of their own, as in a log of lines, or their names say that they are held
    out.
    """
    names = UNKNOWN[kind]
    path = tmp_path / "log.csv"
    lines = []
    for line in table(names, "reward").splitlines():
        cells = line.split(",")
        lines.append(
            ",".join([*cells[:2], *("" for _ in cells[2:])]) if cells[0] != "step" else line
        )
        if cells[0] != "step" and any(cells[2:]):
            lines.append(",".join([cells[0], "", *cells[2:]]))
    path.write_text("\n".join(lines) + "\n")
    assert read_history(str(path), Columns(), None).origin.pass_rate == "reward"
    told = capsys.readouterr().err
    assert (
        f"reward is taken; rows of evaluations hold {', '.join(names)}; --pass-rate chooses "
        "another column"
    ) in told
    chosen = next(iter(names))
    assert len(read_history(str(path), Columns(pass_rate=chosen), None).evaluations) == len(
        names[chosen]
    )


def test_statistics_of_training_are_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        table(
            {
                "actor/pg_clipfrac": list(STEPS),
                "lr": list(STEPS),
                "eval_loss": FEW,
                "eval_runtime": FEW,
            }
        )
    )
    read_history(str(path), Columns(), None)
    assert "rows of evaluations" not in capsys.readouterr().err


def test_two_sets_with_enough_readings_are_asked(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        table({"eval/gsm8k/acc": list(STEPS), "eval/math/acc": list(STEPS), "eval/aime/acc": FEW})
    )
    with pytest.raises(
        UserError, match=r"eval/gsm8k/acc, eval/math/acc could each be the pass rate"
    ):
        read_history(str(path), Columns(), None)
