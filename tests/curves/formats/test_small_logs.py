"""Logs that people really have: the column a person would take is taken, or the right question is
asked.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rollcast
from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.sources.file import CurveFileReader
from testkit.formats.history import read_history

SMALL_LOGS = Path(__file__).parent / "small_logs"
STEPS = range(1, 13)
RIGHT = {
    "wandb_step_beside_eval_step.csv": (
        "W&B run export|CSV",
        "eval_step",
        "eval/accuracy",
        0.155,
        0.3373,
    ),
    "component_accuracy_over_total.json": (
        "trainer_state.json of TRL",
        "step",
        "reward",
        0.25,
        0.8,
    ),
    "bracket_first_line_trl.log": ("console log of TRL", "epoch", "reward", 0.2, 0.64),
    "control_character_in_generation.log": (
        "console log of verl",
        "step",
        "val/test_score/openai/gsm8k",
        0.33,
        0.66,
    ),
    "trl_output_dir": ("trainer_state.json of TRL", "step", "reward", 0.24, 0.68),
    "only_heldout_at_step_0_verl.log": (
        "console log of verl",
        "step",
        "critic/score/mean",
        0.15,
        0.7,
    ),
    "epoch_avg_steps_timestamp.csv": ("CSV", "epoch", "success_rate", 0.44, 0.88),
    "reward_weights_as_candidates.jsonl": ("JSONL", "batch_index", "reward_mean", 0.07, 0.29),
    "tag_bar_key_value.log": ("lines of names and values", "step", "acc", 0.25, 0.8),
}
"""File -> what it is read as, its compute, its pass rate, the first and the last reading; twelve of
them."""


@pytest.mark.parametrize("name", RIGHT)
def test_a_small_log_is_read_right_and_the_page_reads_it_alike(name: str) -> None:
    path = SMALL_LOGS / name
    read_as, compute, pass_rate, first, last = RIGHT[name]
    history = read_history(str(path), Columns(), None)
    assert any(history.origin.format.startswith(kind) for kind in read_as.split("|"))
    assert (history.origin.compute, history.origin.pass_rate) == (compute, pass_rate)
    rates = [point.pass_rate for point in history.evaluations]
    assert (len(rates), rates[0], rates[-1]) == (12, pytest.approx(first), pytest.approx(last))
    live = CurveFileReader(CurveFile(run="live", path=path)).read()
    assert live.origins["live"] == history.origin
    assert [point.pass_rate for point in live.evaluations] == rates


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "component_accuracy_over_total.json",
            "reward is the total reward; its parts are rewards/completeness/mean",
        ),
        (
            "only_heldout_at_step_0_verl.log",
            "fewer than 5 readings after the start in val/test_score/task, so critic/",
        ),
    ],
)
def test_a_choice_that_is_not_obvious_is_reported(
    name: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    read_history(str(SMALL_LOGS / name), Columns(), None)
    told = capsys.readouterr().err
    assert sentence in told
    assert "--pass-rate chooses another column" in told


def test_two_data_sets_are_asked_and_one_can_be_chosen() -> None:
    path = str(SMALL_LOGS / "two_sets.log")
    both = (
        "val-core/openai/gsm8k/reward/mean@1, val-core/math_dapo/acc/mean@16 could each be the "
        "pass rate"
    )
    with pytest.raises(UserError, match=both):
        read_history(path, Columns(), None)
    chosen = read_history(path, Columns(pass_rate="val-core/openai/gsm8k/reward/mean@1"), None)
    assert chosen.evaluations[0].pass_rate == 0.6207


def test_per_cent_are_a_sentence_with_the_option_and_the_option_works() -> None:
    path = SMALL_LOGS / "eval_acc_per_cent.csv"
    with pytest.raises(
        UserError, match=r"eval_acc holds 51, .*if it is per cent, add --scale 0\.01$"
    ):
        read_history(str(path), Columns(), None)
    assert read_history(str(path), Columns(scale=0.01), None).evaluations[
        0
    ].pass_rate == pytest.approx(0.18)
    assert rollcast.forecast(path, scale=0.01).at(300) is not None


@pytest.mark.parametrize("name", ["accuracy (%)", "eval/acc_pct"])
def test_parts_of_one_in_a_column_called_per_cent_are_a_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(table(f"step,{name}", "{s},{r}"))
    assert read_history(str(path), Columns(), None).evaluations[0].pass_rate == pytest.approx(0.23)
    told = capsys.readouterr().err
    assert f"{name} is per cent by its name but holds at most 0.56, read as parts of 1" in told
    assert "if it is per cent, add --scale 0.01" in told
    assert read_history(str(path), Columns(scale=0.01), None).evaluations[
        0
    ].pass_rate == pytest.approx(0.0023)
    assert "per cent" not in capsys.readouterr().err


NEGATIVE = "step,eval_reward\n" + "".join(f"{step},{-0.9 + 0.1 * step}\n" for step in STEPS)


def test_rewards_below_zero_are_shifted_by_the_named_options_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(NEGATIVE)
    with pytest.raises(
        UserError, match=r"for rewards from -1 to 1 add --offset 1 --scale 0\.5, with the least"
    ):
        read_history(str(path), Columns(), None)
    expected = pytest.approx([(0.1 + 0.1 * step) / 2 for step in STEPS])
    by_command = read_history(str(path), Columns(offset=1, scale=0.5), None)
    assert [point.pass_rate for point in by_command.evaluations] == expected
    live = CurveFileReader(CurveFile(run="live", path=path, offset=1, scale=0.5)).read()
    assert [point.pass_rate for point in live.evaluations] == expected
    by_python = rollcast.forecast(path, offset=1, scale=0.5)
    direct = rollcast.forecast(([*STEPS], [(0.1 + 0.1 * step) / 2 for step in STEPS])).at(24)
    assert by_python.at(24) == pytest.approx(direct, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ("0.5,1.7,2.4", "for rewards from 0 to 3 add --scale 0.333, with"),
        ("-2.5,0,3.1", "for rewards from -3 to 4 add --offset 3 --scale 0.142, with"),
        (
            "12.5,31,40",
            "if it is per cent, add --scale 0.01; for rewards from 0 to 40 add --scale 0.025, with",
        ),
        ("-5,-3,-1", "for rewards from -5 to 0 add --offset 5 --scale 0.2, with"),
    ],
)
def test_a_reward_of_any_range_gets_its_mapping(values: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "step,reward\n"
        + "".join(f"{step},{value}\n" for step, value in enumerate(values.split(","), 1))
    )
    with pytest.raises(UserError) as refused:
        read_history(str(path), Columns(), None)
    assert remedy in str(refused.value)


def table(header: str, row: str) -> str:
    """Twelve rows; `row` has the step as `s`, a rising rate as `r`, and a falling one as `f`."""
    rows = [
        row.format(s=step, r=f"{0.2 + 0.03 * step:.3f}", f=f"{0.9 - 0.01 * step:.3f}")
        for step in STEPS
    ]
    return "\n".join([header, *rows]) + "\n" if header else "\n".join(rows) + "\n"


CHOSEN = {
    "stable-baselines3 progress.csv": (
        "rollout/ep_rew_mean,rollout/ep_len_mean,rollout/success_rate,time/fps,time/total_timesteps,train/n_updates",
        "0.5,21.{s},{r},300,{s}000,{s}", "time/total_timesteps", "rollout/success_rate"),
    "Lightning metrics.csv": ("epoch,step,train_reward_step,train_reward_epoch,val_acc",
        "{s},{s}0,0.5,{f},{r}", "step", "val_acc"),
    "tinker metrics": (
        "step,env/all/reward/total,env/all/correct,env/all/by_group/frac_all_good,test/env/all/correct,progress/done_frac",
        "{s},{f},{f},0.1,{r},0.{s}", "step", "test/env/all/correct"),
    "SkyRL": (
        "trainer/global_step,reward/avg_raw_reward,reward/avg_pass_at_8,reward/mean_positive_reward,generate/avg_num_tokens",
        "{s},{r},0.9,0.8,{s}00", "trainer/global_step", "reward/avg_raw_reward"),
    "slime": (
        "rollout/step,rollout/raw_reward,rollout/truncated_ratio,eval/aime,eval/aime-truncated_ratio",
        "{s},{f},0.1,{r},0.2", "rollout/step", "eval/aime"),
    "rllm": (
        "training/global_step,batch/solve_none,batch/solve_all,batch/solve_partial,critic/score/mean,val/test_score/x",
        "{s},3,2,5,{f},{r}", "training/global_step", "val/test_score/x"),
    "counts": ("step,num_correct,correct,total_correct,reward", "{s},{s},{s},{s},{r}", "step",
        "reward"),
    "weights and spreads": (
        "step,loss_weight,reward_weight,reward_std,advantages/mean,frac_reward_zero_std,reward",
        "{s},0.5,0.6,0.2,0.0,0.3,{r}", "step", "reward"),
    "the best so far is not the newest": ("step,best_val_acc,val_acc", "{s},0.9,{r}", "step",
        "val_acc"),
    "held out before an accuracy that does not say so": ("step,accuracy,eval/reward", "{s},{f},{r}",
        "step", "eval/reward"),
    "the mean of several sets": ("step,eval/accuracy,eval/gsm8k/accuracy,eval/math/accuracy",
        "{s},{r},{f},0.{s}", "step", "eval/accuracy"),
    "one data set next to a shaped reward": ("step,eval/reward,eval/gsm8k/accuracy", "{s},{f},{r}",
        "step", "eval/gsm8k/accuracy"),
    "unsloth's parts": ("step,reward,rewards/int_reward_func,rewards/correctness_reward_func",
        "{s},{r},0.1{s},0.0{s}", "step", "reward"),
    "a planned number of steps is no counter": ("total_steps,epoch,accuracy", "500,{s},{r}",
        "epoch", "accuracy"),
    "W&B's counter last": ("_step,_runtime,trainer_step,eval/acc", "{s}7,{s}9,{s},{r}",
        "trainer_step", "eval/acc"),
    "RLlib progress.csv": (
        "timesteps_total,episode_reward_mean,episode_reward_max,episode_len_mean,time_total_s,training_iteration,done",
        "{s}000,{r},1.0,20.0,{s}.5,{s},False", "timesteps_total", "episode_reward_mean"),
}  # fmt: skip
"""Class -> the header and a row of a table, and the right columns."""


@pytest.mark.parametrize("kind", CHOSEN)
def test_the_right_columns_of_other_frameworks_are_taken(kind: str, tmp_path: Path) -> None:
    header, row, compute, pass_rate = CHOSEN[kind]
    path = tmp_path / "log.csv"
    path.write_text(table(header, row))
    origin = read_history(str(path), Columns(), None).origin
    assert (origin.compute, origin.pass_rate) == (compute, pass_rate)


ASKED = {
    "parts without a total": ("step,rewards/completeness/mean,rewards/style/mean", "{s},{r},{f}",
        "rewards/completeness/mean, rewards/style/mean could each be"),
    "an accuracy of something next to a reward": ("step,reward_mean,finding_accuracy",
        "{s},{r},{f}", "reward_mean, finding_accuracy could each be"),
    "sets of different measures": ("step,eval_gsm8k_accuracy,eval_math_reward", "{s},{r},{f}",
        "eval_gsm8k_accuracy, eval_math_reward could each"),
    "only plausible names are offered": ("step,lr,loss,foo,bar", "{s},1,2,{r},{f}",
        "name one of foo, bar with"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ASKED)
def test_what_is_ambiguous_is_asked(kind: str, tmp_path: Path) -> None:
    header, row, sentence = ASKED[kind]
    path = tmp_path / "log.csv"
    path.write_text(table(header, row))
    with pytest.raises(UserError, match=sentence):
        read_history(str(path), Columns(), None)


def test_the_part_for_right_answers_is_taken_with_a_sentence_if_the_total_exceeds_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    header = "step,reward,rewards/accuracy_reward/mean,rewards/format_reward/mean"
    path.write_text(table(header, "{s},1.{s},{r},0.9"))
    assert (
        read_history(str(path), Columns(), None).origin.pass_rate == "rewards/accuracy_reward/mean"
    )
    assert (
        "is taken, the part of reward for right answers; the total leaves [0, 1]"
        in capsys.readouterr().err
    )


def test_a_lone_part_is_never_taken_silently(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(table("step,reward_accuracy,reward_format", "{s},{r},{f}"))
    assert read_history(str(path), Columns(), None).origin.pass_rate == "reward_accuracy"
    assert (
        "reward_accuracy is one part of a reward, and no total is there" in capsys.readouterr().err
    )


LINES = {
    "key=value": ("step={s} reward={r} loss=0.1", "step", "reward"),
    "logfmt with a level": ('level=info msg="done" step={s} acc={r}', "step", "acc"),
    "words and colons": ("Step {s}/100, Average reward: {r}, Loss: 0.5", "step", "Average_reward"),
    "iterations": ("2026-01-02 10:00:{s} - INFO - Iteration {s} - mean reward: {r} - kl: 0.1",
        "iteration", "mean_reward"),
    "nanochat": ("step {s}/467 | loss: 0.123456 | reward: {r} | dt: 12.00ms", "step", "reward"),
    "torchtune": ("Step {s} | loss:0.1 rewards:{r} kl_loss:0.1 ", "step", "rewards"),
    "evaluations apart": ("[train] step {s}: reward=0.9\n[eval] step {s}: reward={r}", "step",
        "eval/reward"),
    "eval in words": ("step {s} reward: 0.9\nEvaluation at step {s}: accuracy: {r}", "step",
        "eval/accuracy"),
    "JSON behind a prefix": ('INFO:root:{{"step": {s}, "reward": {r}}}', "step", "reward"),
    "dicts without an epoch": ("{{'step': {s}, 'reward': np.float64({r})}}", "step", "reward"),
    "a bar of tqdm": ("\r 12%|\u2588 | {s}/100 [00:10<01:00, 1.2s/it, loss=0.1, reward={r}]",
        "step", "reward"),
    "colours": ("\x1b[1;32m[INFO]\x1b[0m step={s} \x1b[38;5;9mreward={r}\x1b[0m\x1b[K", "step",
        "reward"),
    "values behind names": ("step {s} | reward {r} | kl 0.1", "step", "reward"),
    "slime": ((
            "rollout {s}: {{'rollout/raw_reward': 0.9, 'rollout/truncated': 0.1}}\neval {s}: "
            "{{'eval/aime': {r}}}"
        ),
        "step", "eval/aime"),
    "a place in the code": (
        "2026-01-01 10:00:00.123 | INFO | trainer:step:88 - step={s} | mean_reward={r}", "step",
        "mean_reward"),
    "a bar that is drawn again": ((
            "\r {s}/100 [00:10<01:00, 1.2s/it, reward=0.9]\r {s}/100 [00:10<01:00, 1.2s/it, "
            "reward={r}]"
        ),
        "step", "reward"),
    "a bar of one epoch": ("Epoch 1:  12%|\u2588 | {s}/100 [00:10<01:00, 1.2s/it, reward={r}]",
        "step", "reward"),
    "epochs": ("Epoch {s}/12: loss=0.3, success_rate={r}", "epoch", "success_rate"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize(
    "first_line", ["", "[2026-01-02 10:00:00] starting\n", "{'lr': 1}\n", '{"model": "m"}\n']
)
def test_lines_of_names_and_values_are_read_whatever_the_first_one_is(
    kind: str, first_line: str, tmp_path: Path
) -> None:
    line, compute, pass_rate = LINES[kind]
    path = tmp_path / "train.log"
    path.write_text(first_line + table("", line), newline="")
    history = read_history(str(path), Columns(), None)
    origin = history.origin
    assert (origin.format, origin.compute, origin.pass_rate) == (
        "lines of names and values",
        compute,
        pass_rate,
    )
    assert [round(point.pass_rate, 3) for point in history.evaluations] == [
        round(0.2 + 0.03 * s, 3) for s in STEPS
    ]


PRINTED = {
    "alone": ("step {s} | loss: 0.1 | reward: {r}", "So at step 999: accuracy = 0.99", "reward"),
    "between evaluations": (
        ("step {s} | loss: 0.1 | reward: 0.9\nstep {s} | loss: 0.2 | reward: 0.8\n[eval] step "
        "{s}: accuracy: {r}"),
        "eval @ step 2: accuracy = 0.01", "eval/accuracy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PRINTED)
def test_an_answer_that_looks_like_a_line_of_the_log_is_no_reading(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, answer, pass_rate = PRINTED[kind]
    path = tmp_path / "train.log"
    lines = table("", line).splitlines(keepends=True)
    for place in (14, 8, 8):
        lines.insert(min(place, len(lines) - 2), f"{answer}\n")
    path.write_text("".join(lines))
    history = read_history(str(path), Columns(), None)
    assert history.origin.pass_rate == pass_rate
    assert [round(point.pass_rate, 3) for point in history.evaluations] == [
        round(0.2 + 0.03 * s, 3) for s in STEPS
    ]
    told = capsys.readouterr().err
    assert "3 lines left out, an answer or summary by its step" in told
    assert f"the first is line 9: {answer}" in told


def evaluated_late(first: int, last: int, every: int, delay: int) -> str:
    """A loop's lines from the first to the last step, and an evaluation some steps after each that
    was evaluated.
    """
    lines = []
    for step in range(first, last + 1):
        lines.append(f"step {step} | loss: 0.1 | kl: 0.1")
        evaluated = step - delay
        if evaluated > 0 and evaluated % every == 0:
            lines.append(f"eval @ step {evaluated}: accuracy: {evaluated / 1000}")
    return "\n".join(lines) + "\n"


def evaluated_by_samples(answer: str) -> str:
    """Evaluations that count samples, with an answer between two of them."""
    return table(
        "",
        (
            "step {s} | loss: 0.2 | kl: 0.1\nstep {s} | loss: 0.1 | kl: 0.1\neval @ step {s}000: "
            "accuracy: {r}"
        ),
    ).replace("step 6 | loss: 0.2", f"{answer}\nstep 6 | loss: 0.2")


EVALUATED = {
    "late, with a restart": (evaluated_late(1, 230, 40, 5) + evaluated_late(201, 300, 40, 5),
        [40, 80, 120, 160, 200, 240, 280], 0),
    "late, and ending after a restart": (
        evaluated_late(1, 220, 40, 5) + evaluated_late(181, 300, 40, 25),
        [40, 80, 120, 160, 200, 240], 0),
    "two, late": (evaluated_late(1, 100, 40, 5), [40, 80], 0),
    "with a summary": ((
            evaluated_late(1, 300, 50, 0)
            + "best eval: step 200, accuracy: 0.2\nlast eval: step 300, accuracy: 0.3\n"
        ),
        [50, 100, 150, 200, 250, 300], 1),
    "by samples, with an answer below": (evaluated_by_samples("eval @ step 999: accuracy: 0.99"),
        [1000 * s for s in STEPS], 1),
    "by samples, with an answer above": (evaluated_by_samples("eval @ step 99999: accuracy: 0.99"),
        [1000 * s for s in STEPS], 1),
}  # fmt: skip
"""How a run is evaluated -> its log, the steps of its readings, and how many lines are left out."""


@pytest.mark.parametrize("kind", EVALUATED)
def test_evaluations_around_a_loop_are_readings(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, steps, num_left_out = EVALUATED[kind]
    path = tmp_path / "train.log"
    path.write_text(text)
    assert [point.step for point in read_history(str(path), Columns(), None).evaluations] == steps
    assert (f"{num_left_out} line left out, an answer" in capsys.readouterr().err) == (
        num_left_out > 0
    )


def test_a_summary_alone_is_left_out_with_a_sentence_and_the_loop_stays_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        table("", "step {s} | loss: 0.1 | reward: {r}") + "best model: step 8, accuracy 0.5\n" * 2
    )
    assert len(read_history(str(path), Columns(), None).evaluations) == 12
    told = capsys.readouterr().err
    assert "2 lines left out" in told
    assert "the first is line 13: best model: step 8, accuracy 0.5" in told


@pytest.mark.parametrize("first", [0, 1])
def test_an_evaluation_at_the_end_of_every_epoch_is_kept_if_steps_begin_again(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    loop = "".join(f"step {step} | loss: 0.1 | kl: 0.1\n" for step in range(first, first + 50))
    epochs = range(1, 7)
    path.write_text(
        "".join(f"{loop}epoch {epoch} step 50: accuracy={epoch / 10}\n" for epoch in epochs)
    )
    history = read_history(str(path), Columns(), None)
    assert [point.pass_rate for point in history.evaluations] == [epoch / 10 for epoch in epochs]
    assert history.origin.compute == "epoch"
    # Without epochs it could have been restarted, so each replaces the one before; none is taken
    # for an answer.
    path.write_text("".join(f"{loop}step 50: accuracy={epoch / 10}\n" for epoch in epochs))
    assert [point.pass_rate for point in read_history(str(path), Columns(), None).evaluations] == [
        0.6
    ]
    told = capsys.readouterr().err
    assert "5 evaluations left out, of steps that were made again after a restart" in told
    assert "an answer" not in told


def test_evaluations_that_are_printed_late_or_numbered_by_themselves_are_readings(
    tmp_path: Path,
) -> None:
    for name, behind in (
        ("late", "eval @ step {s}: accuracy: {r}"),
        ("numbered", "step {s}: accuracy: {r}"),
    ):
        path = tmp_path / f"{name}.log"
        path.write_text(
            "".join(
                f"step {20 + s} | loss: 0.1 | kl: 0.1\n" + behind.format(s=s, r=s / 20) + "\n"
                for s in STEPS
            )
        )
        assert [
            point.step for point in read_history(str(path), Columns(), None).evaluations
        ] == list(STEPS)


def test_tags_of_two_runs_are_two_runs(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(table("", "[run1] {s}/12 | reward={r}\n[run2] {s}/12 | reward={f}"))
    with pytest.raises(UserError, match="holds 2 runs; choose one of run1, run2"):
        read_history(str(path), Columns(), None)
    assert read_history(str(path), Columns(), "run2").evaluations[0].pass_rate == 0.89


def test_prose_is_no_log_and_the_sentence_says_which_forms_are_known(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("The reward rose.\nNothing else did.\nWe stopped.\n")
    with pytest.raises(
        UserError, match="the form of this log is not known; give CSV, JSON, lines of NAME=VALUE"
    ):
        read_history(str(path), Columns(), None)


@pytest.mark.parametrize(
    "inside", ["\x08", "\x0c", "\x1d", "\x00", "\x7f", "\ufeff", "\x1b]0;title\x07", "\x1b[?25l"]
)
def test_control_characters_are_dropped(inside: str, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    text = table("step,note,reward", "{s},a printed answer of some length," + "{r}")
    path.write_text(text.replace("answer", f"ans{inside}wer", 2))
    assert len(read_history(str(path), Columns(), None).evaluations) == 12


def test_lines_of_json_behind_a_console_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("Loading the model\n" + table("", '{{"step": {s}, "reward": {r}}}'))
    assert read_history(str(path), Columns(), None).origin.format == "JSONL"


def test_tables_inside_of_json_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    training = [{"step": step, "reward": 0.9} for step in range(1, 61)]
    held_out = [{"step": 5 * step, "accuracy": 0.2 + step / 100} for step in STEPS]
    path.write_text(
        json.dumps(
            {"config": {"betas": [0.9, 0.95]}, "metrics": {"train": training, "eval": held_out}}
        )
    )
    history = read_history(str(path), Columns(), None)
    assert history.origin.pass_rate == "metrics/eval/accuracy"
    assert [point.compute for point in history.evaluations] == [5 * step for step in STEPS]


def test_lists_of_two_lengths_are_two_tables(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    columns = {
        "steps": [*range(1, 61)],
        "rewards": [0.9] * 60,
        "eval_steps": [5 * s for s in STEPS],
        "eval_acc": [0.2 + s / 100 for s in STEPS],
    }
    path.write_text(json.dumps(columns))
    origin = read_history(str(path), Columns(), None).origin
    assert (origin.compute, origin.pass_rate) == ("eval_steps", "eval_acc")


def test_the_newest_of_a_trainers_states_is_read(tmp_path: Path) -> None:
    """A checkpoint that was not finished has no state; after a resumption the folder's own state is
    older.
    """

    def state(step: int) -> str:
        return json.dumps(
            {
                "global_step": step,
                "log_history": [{"step": s, "reward": 0.5} for s in range(1, step + 1)],
            }
        )

    for name, step in (("checkpoint-9", 9), ("checkpoint-10", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state(step))
    (tmp_path / "checkpoint-11").mkdir()
    assert len(read_history(str(tmp_path), Columns(), None).evaluations) == 10
    (tmp_path / "trainer_state.json").write_text(state(5))
    assert len(read_history(str(tmp_path), Columns(), None).evaluations) == 10
    (tmp_path / "trainer_state.json").write_text(state(12))
    assert len(read_history(str(tmp_path), Columns(), None).evaluations) == 12


TABLES = {
    "comments": ('# a run\n#{"seed": 1}\nstep,reward\n', "{s},{r}", "step", "reward"),
    "a header behind a comment mark": ("# step,reward\n", "{s},{r}", "step", "reward"),
    "bars": ("| step | reward |\n|---|:-:|\n", "| {s} | {r} |", "step", "reward"),
    "spaces": ("step  reward\n", "{s}   {r}", "step", "reward"),
    "line ends of an old Mac": ("step,reward\r", "{s},{r}\r", "step", "reward"),
    "cells without a number": (
        "step,reward,eval_acc\n0,0.1,None\n",
        "{s},{f},{r}\n{s},{f},N/A",
        "step",
        "eval_acc",
    ),
    "steps of each epoch": ("epoch,step,reward\n", "{s},0,\n{s},1,{r}", "epoch", "reward"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_many_hands_are_read(kind: str, tmp_path: Path) -> None:
    header, row, compute, pass_rate = TABLES[kind]
    path = tmp_path / "log.csv"
    path.write_text(header + table("", row).replace("\r\n", "\r"), newline="")
    history = read_history(str(path), Columns(), None)
    assert (history.origin.compute, history.origin.pass_rate) == (compute, pass_rate)
    found = {point.compute: round(point.pass_rate, 3) for point in history.evaluations}
    assert found == {s: round(0.2 + 0.03 * s, 3) for s in STEPS}


def test_seeds_below_one_another_are_runs_and_not_restarts(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("seed,step,reward\n" + table("", "1,{s},{r}") + table("", "2,{s},{f}"))
    with pytest.raises(
        UserError, match=r"seed differs between rows of equal step; choose one of 1, 2"
    ):
        read_history(str(path), Columns(), None)
    assert len(read_history(str(path), Columns(where=("seed=2",)), None).evaluations) == 12


@pytest.mark.parametrize(
    "document",
    [
        {str(s): {"reward": 0.2 + s / 50} for s in STEPS},
        [[1.7e9 + s, s, 0.2 + s / 50] for s in STEPS],
        {"results": {"history": {"step": [*STEPS], "reward": [0.2 + s / 50 for s in STEPS]}}},
    ],
    ids=["by step", "scalars of TensorBoard", "columns below"],
)
def test_json_of_other_shapes_is_read(document: object, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(document))
    history = read_history(str(path), Columns(), None)
    assert [point.compute for point in history.evaluations] == [*STEPS]
    assert [point.pass_rate for point in history.evaluations] == pytest.approx(
        [0.2 + s / 50 for s in STEPS]
    )


def test_the_stage_in_a_name_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(table("", "Epoch {s}: train loss 0.5, val acc {r}"))
    assert read_history(str(path), Columns(), None).origin.pass_rate == "val_acc"
