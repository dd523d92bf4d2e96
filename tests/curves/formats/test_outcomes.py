"""One line a game: averaged at each step with its binomial error.

Counts with totals become rates.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.sources.file import CurveFileReader
from testkit.formats.history import read_history

STEPS = range(10, 170, 10)
GAMES = 8
WORDS = ("apple", "baker", "cider", "delta", "eagle", "fable", "giant", "hotel")


def games() -> Iterator[tuple[int, int, bool]]:
    """Step, number of the game, whether it was won."""
    dice = random.Random(1)
    for step in STEPS:
        for number in range(GAMES):
            yield step, number, dice.random() < 0.1 + step / 250


SHARES = {step: sum(won for at, _, won in games() if at == step) / GAMES for step in STEPS}
EVERY = list(games())
MIXED = [
    {"log_type": "train", "step": s, "solved": s % 3 == 0, "final_reward": 1.5, "secret_word": "x"}
    for s in range(1, 161)
] + [
    {"log_type": "eval", "step": s, "solved": w, "final_reward": -1.0, "secret_word": WORDS[n]}
    for s, n, w in EVERY
]


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


LOGS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "true and false": (jsonl(*({"step": s, "solved": w} for s, _, w in EVERY)), "solved", ()),
    "by word": (jsonl(*({"step": s, "word": WORDS[n], "solved": w} for s, n, w in EVERY)), "solved",
        ()),
    "0 and 1": (jsonl(*({"step": s, "game": n, "win": int(w)} for s, n, w in EVERY)), "win", ()),
    "a table of True": ("step,success\n" + "".join(f"{s},{w}\n" for s, _, w in EVERY), "success",
        ()),
    "a table of yes": (
        "step,question,correct\n" + "".join(
            f"{s},q{n},{'yes' if w else 'No'}\n" for s, n, w in EVERY
        ),
        "correct", ()),
    "a table of true": (
        "step,opponent,win\n" + "".join(f"{s},o{n},{str(w).lower()}\n" for s, n, w in EVERY), "win",
        ()),
    "a table of 1.0": ("iteration,success\n" + "".join(f"{s},{float(w)}\n" for s, _, w in EVERY),
        "success", ()),
    "with rewards": (
        jsonl(*({"step": s, "correct": w, "reward": 7.5 * w - n} for s, n, w in EVERY)), "correct",
        ()),
    "with a seed": (jsonl(*({"step": s, "seed": n, "success": w} for s, n, w in EVERY)), "success",
        ()),
    "train and eval": (jsonl(*MIXED), "solved", ("log_type=eval",)),
    "among lines of training": (
        jsonl(*({"step": s, "loss": 0.1} for s in range(1, 10)),
            *({"step": s, "eval/solved": w} for s, _, w in EVERY)),
        "eval/solved", ()),
    "in lines": (
        "".join(f"[game] step {s} | game_{n % 3} | solved: {int(w)}\n" for s, n, w in EVERY),
        "solved", ()),
    "in words": (
        "".join(f"Step {s}: game {n}: reward = {7 - n}, solved = {w}\n" for s, n, w in EVERY),
        "solved", ()),
    "in a list": (json.dumps([{"step": s, "word": WORDS[n], "solved": w} for s, n, w in EVERY]),
        "solved", ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOGS)
def test_games_of_a_step_are_one_evaluation(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, pass_rate, where = LOGS[kind]
    path = tmp_path / "log.txt"
    path.write_text(text)
    history = read_history(str(path), Columns(where=where), None)
    assert history.origin.pass_rate == pass_rate
    assert {item.step: item.pass_rate for item in history.evaluations} == pytest.approx(SHARES)
    for item in history.evaluations:
        if 0 < item.pass_rate < 1:
            error = math.sqrt(item.pass_rate * (1 - item.pass_rate) / GAMES)
            assert item.standard_error == pytest.approx(error)
        else:
            assert 0.02 < (item.standard_error or 0) < 0.2
    assert (
        "128 rows are 16 evaluations, the means of those of one step; the standard errors are "
        "binomial"
    ) in (capsys.readouterr().err)
    live = CurveFileReader(CurveFile(run="live", path=path, where=where)).read()
    assert [item.pass_rate for item in live.evaluations] == pytest.approx(list(SHARES.values()))


def test_training_or_evaluation_is_asked_first(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(jsonl(*MIXED))
    with pytest.raises(
        UserError, match="log_type differs between rows of equal step; choose one of train, eval"
    ):
        read_history(str(path), Columns(), None)
    flagged = tmp_path / "flagged.jsonl"
    flagged.write_text(
        jsonl(*({"is_eval": row.pop("log_type") == "eval", **row} for row in map(dict, MIXED)))
    )
    with pytest.raises(
        UserError, match="is_eval differs between rows of equal step; choose one of False, True"
    ):
        read_history(str(flagged), Columns(), None)


def test_a_suite_with_several_games_of_a_step_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        jsonl(*({"step": s, "level": f"level {n % 2}", "solved": w} for s, n, w in EVERY))
    )
    with pytest.raises(
        UserError, match="level differs between rows of equal step; choose one of level 0, level 1"
    ):
        read_history(str(path), Columns(), None)
    assert len(read_history(str(path), Columns(where=("level=level 1",)), None).evaluations) == len(
        STEPS
    )


def test_rewards_of_episodes_are_averaged_with_the_error_of_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rewards = {s: [0.2 + s / 400 + n / 100 for n in range(GAMES)] for s in STEPS}
    path.write_text(
        jsonl(
            *(
                {"step": s, "episode_id": f"e{n}", "reward": rewards[s][n]}
                for s in STEPS
                for n in range(GAMES)
            )
        )
    )
    history = read_history(str(path), Columns(), None)
    assert [item.pass_rate for item in history.evaluations] == pytest.approx(
        [sum(r) / GAMES for r in rewards.values()]
    )
    error = math.sqrt(sum((n / 100 - 0.035) ** 2 for n in range(GAMES)) / (GAMES - 1) / GAMES)
    assert {round(item.standard_error or 0, 9) for item in history.evaluations} == {round(error, 9)}


def test_one_game_a_step_is_averaged_over_stretches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    won = [won for _, _, won in EVERY]
    path.write_text(jsonl(*({"episode": number, "win": w} for number, w in enumerate(won, 1))))
    history = read_history(str(path), Columns(), None)
    assert [item.pass_rate for item in history.evaluations] == [
        sum(won[at : at + 8]) / 8 for at in range(0, 128, 8)
    ]
    assert "128 single outcomes are averaged over 8 in a row" in capsys.readouterr().err


@pytest.mark.parametrize(
    "rates",
    [
        [0.0] * 20,
        [0.0] * 10 + [1.0] * 20,
        [0.1, 0.3, 0.5, 0.7, 0.8, 0.85, 1.0, 1.0, 1.0, 1.0],
        [1.0] * 9,
    ],
    ids=["dead", "at once", "rising to one", "saturated"],
)
def test_a_curve_of_zeros_and_ones_stays_as_it_is(rates: list[float], tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,accuracy\n" + "".join(f"{10 * n},{r}\n" for n, r in enumerate(rates, 1)))
    history = read_history(str(path), Columns(), None)
    assert [item.pass_rate for item in history.evaluations] == rates
    assert {item.standard_error for item in history.evaluations} == {None}


def test_a_reading_that_each_process_logs_is_no_sample(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("step,accuracy\n" + "".join(f"{s},{s / 400}\n" * 4 for s in STEPS))
    history = read_history(str(path), Columns(), None)
    assert [item.standard_error for item in history.evaluations] == [None] * len(STEPS)


WON = {step: round(3 + 40 * step / (step + 60)) for step in STEPS}
COUNTS: dict[str, tuple[str | None, str, int]] = {
    "wins of n_games": ("step,wins,n_games", "{s},{w},50", 50),
    "correct of total": ("step,correct,total", "{s},{w},50", 50),
    "num_correct of num_samples": ("step,num_correct,num_samples,loss", "{s},{w},64,0.1", 64),
    "of one stage": ("step,eval_correct,eval_total,train_total", "{s},{w},60,999", 60),
    "of a path": (
        "step,eval/num_solved,eval/num_problems,train/num_problems",
        "{s},{w},60,999",
        60,
    ),
    "solved of problems": ("step,solved,problems", "{s},{w},100", 100),
    "successes of episodes": ("iteration,successes,episodes,reward_std", "{s},{w},50,0.1", 50),
    "two totals that agree": ("step,correct,num_samples,num_prompts", "{s},{w},50,50", 50),
    "next to a reward": ("step,reward,total_correct,total_questions", "{s},17.5,{w},50", 50),
    "among counts of failures": ("step,num_failed,num_passed,num_tests", "{s},7,{w},50", 50),
    "wins and losses": ("epoch,wins,losses,games", "{s},{w},3,50", 50),
    "passed and failed": ("step,passed,failed", "{s},{w},{f}", 50),
    "wins, losses and draws": ("step,wins,losses,draws", "{s},{w},{f},14", 64),
    "correct and incorrect": ("step,loss,correct,incorrect", "{s},0.1,{w},{f}", 50),
    "of a stage, with failures": (
        "step,eval/num_passed,eval/num_failed,train/num_failed",
        "{s},{w},{f},7",
        50,
    ),
    "lines": (None, "step={s} num_correct={w} num_total=64 loss=0.1", 64),
    "lines of two stages": (
        None,
        (
            "[train] step={s} num_correct=12 num_total=16\n[eval] step={s} num_correct={w} "
            "num_total=64"
        ),
        64,
    ),
    "JSON with failures": (
        None,
        '{{"step": {s}, "eval": {{"num_passed": {w}, "num_failed": {f}}}}}',
        50,
    ),
}


@pytest.mark.parametrize("kind", COUNTS)
def test_a_count_with_its_total_is_a_rate(kind: str, tmp_path: Path) -> None:
    header, row, total = COUNTS[kind]
    path = tmp_path / ("train.log" if header is None else "log.csv")
    rows = "".join(row.format(s=s, w=w, f=50 - w) + "\n" for s, w in WON.items())
    path.write_text(rows if header is None else f"{header}\n{rows}")
    history = read_history(str(path), Columns(), None)
    assert " of " in history.origin.pass_rate
    shares = [w / total for w in WON.values()]
    assert [item.pass_rate for item in history.evaluations] == pytest.approx(shares)
    errors = [math.sqrt(share * (1 - share) / total) for share in shares]
    assert [item.standard_error for item in history.evaluations] == pytest.approx(errors)
    count = history.origin.pass_rate.partition(" of ")[0]
    with pytest.raises(UserError) as refused:
        read_history(str(path), Columns(pass_rate=count), None)
    assert f"give --pass-rate {history.origin.pass_rate!r}" in str(refused.value)
    assert "0.01" not in str(refused.value)


@pytest.mark.parametrize(
    ("header", "row", "taken"),
    [
        ("step,win_rate,wins,n_games", "{s},0.{s},{w},50", "win_rate"),
        ("step,wins,episode,reward", "{s},{w},{s}00,0.{s}", "reward"),
    ],
    ids=["the rate is there", "a total that rises"],
)
def test_no_rate_is_made_of_counts_that_have_one_or_no_total(
    header: str, row: str, taken: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        header + "\n" + "".join(row.format(s=s, w=3 + s % 7) + "\n" for s in range(10, 30))
    )
    assert read_history(str(path), Columns(), None).origin.pass_rate == taken


@pytest.mark.parametrize(
    ("header", "rise"),
    [("step,wins", 0), ("step,wins,losses", 50)],
    ids=["without a total", "since the start"],
)
def test_a_count_without_a_total_gets_a_remedy_for_counts(
    header: str, rise: int, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"{header}\n" + "".join(f"{s},{w},{s * rise}\n" for s, w in WON.items()))
    with pytest.raises(
        UserError, match=r"if it counts the right ones of N answers, add --scale with 1 / N$"
    ):
        read_history(str(path), Columns(pass_rate="wins"), None)


SHARES_IN_LINES = {
    "after a name": "step {s} accuracy {w}/64",
    "after a colon": "step {s}: accuracy: {w}/64",
    "after a stage": "step {s} loss 0.3\nstep {s} eval accuracy {w}/64",
    "below headings": "=== step {s} ===\nThe answer is 7.\naccuracy {w}/64",
    "of games next to their return": "update {s}: won {w}/64 games, mean return 0.4{s}",
    "of correct ones behind a reward": "step {s} | reward: 0.4{s} | {w}/64 correct",
    "of correct ones below headings": "=== step {s} ===\nanswer: 7\n{w}/64 correct",
}


@pytest.mark.parametrize("kind", SHARES_IN_LINES)
def test_a_share_in_a_line_is_a_rate(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(SHARES_IN_LINES[kind].format(s=s, w=w) + "\n" for s, w in WON.items()))
    history = read_history(str(path), Columns(), None)
    assert {item.step: item.pass_rate for item in history.evaluations} == {
        s: w / 64 for s, w in WON.items()
    }


def test_rewards_are_mapped_by_the_bounds_that_the_log_holds(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = "".join(f"{s},{s / 200 - 0.1},-0.2,1.0\n" for s in STEPS)
    path.write_text("step,critic/score/mean,critic/score/min,critic/score/max\n" + rows)
    with pytest.raises(
        UserError,
        match=r"for rewards from -0\.2 to 1 add --offset 0\.2 --scale 0\.833, the least and",
    ):
        read_history(str(path), Columns(), None)
    assert len(read_history(str(path), Columns(offset=0.2, scale=0.833), None).evaluations) == len(
        STEPS
    )
