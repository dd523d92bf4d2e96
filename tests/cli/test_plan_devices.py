"""`rollcast plan devices`: from given rates, and from the folder of a run whose rates are known."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_4B
from tests.cli.command import rollcast
from tests.cli.known_run import GROUPS, ROLLOUTS, SLOTS, STEP_SECONDS, spent, write_run

GIVEN: tuple[str | int, ...] = (
    "--step-seconds",
    12,
    "--tokens-per-second",
    800,
    "--mean-tokens",
    100,
)
GIVEN = (
    *GIVEN,
    "--longest-tokens",
    100,
    "--groups",
    4,
    "--rollouts",
    2,
    "--slots",
    8,
    "--publish-seconds",
    0,
)


def given(option: str, value: str | int) -> tuple[str | int, ...]:
    """The same with another value of an option."""
    place = GIVEN.index(option) + 1
    return (*GIVEN[:place], value, *GIVEN[place + 1 :])


def test_given_equal_lengths_the_answer_is_the_closed_form(tmp_path: Path) -> None:
    """One generator makes 800 tokens a second, the 4 x 2 x 100 of one step; T trainer devices need
    12 / T seconds.
    """
    picture = tmp_path / "split.svg"
    answered = rollcast("plan", "devices", "--devices", 20, *GIVEN, "--json", "--plot", picture)
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    seconds = {trainer: max(1 / (20 - trainer), 12 / trainer) for trainer in range(1, 20)}
    best = min(seconds, key=seconds.__getitem__)
    assert answer["recommended"]["trainer_devices"] == best
    for split in answer["splits"]:
        # one group takes 1 s, and 8 batches may be under way while one is in training
        window = (1 + 12 / split["trainer_devices"]) / 8
        expected = 3600 / max(seconds[split["trainer_devices"]], window)
        assert split["bound"] == pytest.approx(expected)
        assert split["steps_per_hour"] == pytest.approx(expected, rel=0.02)
    assert len(answer["splits"]) + answer["beaten_by_bound"] + answer["passed_over"] == 19
    assert answer["limit"] == "training"
    assert picture.read_text().lstrip().startswith("<?xml")
    shown = " ".join(rollcast("plan", "devices", "--devices", 20, *GIVEN).stdout.split())
    assert f"{20 - best} generators of 1 and {best} trainer devices:" in shown
    assert "caution: A trainer on T devices" in shown


def test_of_splits_as_good_as_another_the_star_stands_at_the_fewest_trainers() -> None:
    """A group lasts 1 s and its window is the bound, whatever the trainer: one trainer device is as
    good as several.
    """
    quick = given("--step-seconds", "0.02")
    answer = json.loads(rollcast("plan", "devices", "--devices", 12, *quick, "--json").stdout)
    best = max(split["steps_per_hour"] for split in answer["splits"])
    as_good = [split for split in answer["splits"] if split["steps_per_hour"] >= 0.97 * best]
    fewest = min(split["trainer_devices"] for split in as_good)
    assert len(as_good) > 1, "else nothing is chosen among"
    assert sorted(answer["as_good_trainer_devices"]) == sorted(
        split["trainer_devices"] for split in as_good
    )
    assert answer["recommended"]["trainer_devices"] == fewest
    shown = rollcast("plan", "devices", "--devices", 12, *quick).stdout.splitlines()
    (starred,) = [line.split() for line in shown if " * " in line]
    assert starred[:3] == [str(12 - fewest), "*", str(fewest)]


def test_a_rate_that_the_noise_hides_is_no_reason_for_more_trainers() -> None:
    """Stragglers of a wide spread: the most steps an hour are made by chance, at trainers that wait
    all the time.
    """
    noisy = (
        "--step-seconds",
        "0.4",
        "--tokens-per-second",
        500,
        "--mean-tokens",
        20,
        "--groups",
        14,
        "--rollouts",
        8,
    )
    answer = json.loads(rollcast("plan", "devices", "--devices", 8, *noisy, "--json").stdout)
    best = max(answer["splits"], key=lambda split: split["steps_per_hour"])
    chosen = answer["recommended"]
    difference = best["steps_per_hour"] - chosen["steps_per_hour"]
    assert difference > 0.03 * best["steps_per_hour"], "else the margin alone decides"
    assert difference <= math.hypot(best["standard_error"], chosen["standard_error"])
    assert (chosen["trainer_devices"], best["trainer_devices"] > 1) == (1, True)
    assert {1, best["trainer_devices"]} <= set(answer["as_good_trainer_devices"])


def test_a_run_folder_gives_its_rates_and_the_model_returns_its_speed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    answered = rollcast("plan", "devices", "--devices", 6, "--run-folder", folder, "--json")
    assert answered.returncode == 0, answered.stderr
    answer = json.loads(answered.stdout)
    rates, measured = answer["rates"], answer["measured"]
    assert rates["step_seconds"] == pytest.approx(STEP_SECONDS)
    assert (rates["slots"], rates["groups_per_step"], rates["rollouts_per_group"]) == (
        SLOTS,
        GROUPS,
        ROLLOUTS,
    )
    assert rates["max_staleness"] == 4
    assert rates["generator_tokens_per_second"] == pytest.approx(SLOTS / 0.03, rel=0.12)
    assert measured["staleness_mean"] == pytest.approx(2.5)
    assert measured["simulated_steps_per_hour"] == pytest.approx(
        measured["steps_per_hour"], rel=0.12
    )
    assert {split["trainer_devices"] for split in answer["splits"]} == {1, 2, 3, 4, 5}
    best = max(answer["splits"], key=lambda split: split["steps_per_hour"])
    assert answer["recommended"] == best
    assert all(split["staleness_max"] <= 4 for split in answer["splits"])
    shown = rollcast("plan", "devices", "--devices", 6, "--run-folder", folder).stdout
    assert "Measured on 2 generators and 1 trainer devices" in " ".join(shown.split())


def test_lines_that_are_left_out_are_counted(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name, line in (("steps.jsonl", '{"step": 999}\n'), ("tasks.jsonl", '[1]\n"x"\n')):
        with (folder / name).open("a") as file:
            file.write(line)
    answered = rollcast("plan", "devices", "--devices", 2, "--run-folder", folder, "--json")
    assert answered.returncode == 0, answered.stderr
    assert answered.stderr.splitlines() == [
        f"{folder}/steps.jsonl: 1 line left out, torn or no record of a run",
        f"{folder}/steps.jsonl: 1 step left out, without its time, its update's or its tokens",
        f"{folder}/tasks.jsonl: 2 lines left out, torn or no record of a run",
    ]


def test_what_was_not_measured_is_said(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", with_longest=False)
    answer = json.loads(
        rollcast("plan", "devices", "--devices", 4, "--run-folder", folder, "--json").stdout
    )
    caveats = " ".join(answer["caveats"])
    assert "spread of lengths was not measured" in caveats
    assert "waiting for rollouts" in caveats
    faster = (
        "--tokens-per-second",
        5000,
        "--tokens-per-second-alone",
        900,
        "--longest-tokens",
        180,
    )
    answer = json.loads(
        rollcast(
            "plan", "devices", "--devices", 4, "--run-folder", folder, *faster, "--json"
        ).stdout
    )
    assert answer["rates"]["generator_tokens_per_second"] == pytest.approx(5000)
    caveats = " ".join(answer["caveats"])
    assert "spread of lengths" not in caveats
    assert "equally fast at any load" not in caveats
    assert "A trainer on T devices is taken to be T / 1 times as fast" in caveats


def test_a_scaling_that_is_given_is_no_assumption(tmp_path: Path) -> None:
    """1 is the default too, and then an assumption."""
    command = ("plan", "devices", "--devices", 4, *GIVEN, "--json")
    usual, given_one = (
        json.loads(rollcast(*command, *more).stdout) for more in ((), ("--trainer-scaling", 1))
    )
    assert usual["splits"] == given_one["splits"]
    assert [line for line in usual["caveats"] if line not in given_one["caveats"]] == [
        "A trainer on T devices is taken to be T / 1 times as fast as the one measured on 1; "
        "measure a second count and set --trainer-scaling."
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "one is missing; give all three"),
        (("--run-folder", "nowhere"), "cannot be read"),
        (given("--step-seconds", -1), "--step-seconds -1: must be positive"),
        (given("--mean-tokens", "nan"), "--mean-tokens nan: must be positive"),
        ((*GIVEN, "--max-tokens", 50), "is more than the budget of 50"),
        (
            given("--longest-tokens", 99),
            "--longest-tokens 99: is less than the mean completion of 100 tokens",
        ),
        ((*GIVEN, "--tokens-per-second-alone", 5), "is less than a rollout has among 8"),
        ((*GIVEN, "--trainer-multiple", 8), "one generator and one trainer need 9"),
        ((*GIVEN, "--plot", "x.pdf"), "choose one of these endings"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    arguments: tuple[object, ...], sentence: str
) -> None:
    result = rollcast("plan", "devices", "--devices", 4, *arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_that_is_too_short_or_counts_no_devices_is_named(tmp_path: Path) -> None:
    short = write_run(tmp_path / "short", steps=5)
    assert (
        "holds 5 optimizer steps"
        in rollcast("plan", "devices", "--devices", 4, "--run-folder", short).stderr
    )
    folder = write_run(tmp_path / "run")
    (folder / "compute.json").write_text(spent(generators=0))
    result = rollcast("plan", "devices", "--devices", 4, "--run-folder", folder)
    assert (result.returncode, "counts 0 generator" in result.stderr) == (2, True)
    (folder / "compute.json").write_text("[]")
    assert (
        "does not say how many devices"
        in rollcast("plan", "devices", "--devices", 4, "--run-folder", folder).stderr
    )


def test_a_pause_of_the_run_does_not_count_as_a_step(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = json.loads(
        rollcast("plan", "devices", "--devices", 2, "--run-folder", folder, "--json").stdout
    )
    lines = (folder / "steps.jsonl").read_text().splitlines()[:-1]
    records = [json.loads(line) for line in lines]
    for record in records[random.Random(0).randrange(50, 70) :]:
        record["at"] += 86_400
    (folder / "steps.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    after = json.loads(
        rollcast("plan", "devices", "--devices", 2, "--run-folder", folder, "--json").stdout
    )
    assert (before["measured"]["pauses_left_out"], after["measured"]["pauses_left_out"]) == (0, 1)
    assert after["measured"]["steps_per_hour"] == pytest.approx(
        before["measured"]["steps_per_hour"], rel=0.05
    )


def test_a_run_file_on_gpus_is_split_by_predicted_rates(tmp_path: Path) -> None:
    """One GPU of 80 GB trains 4 B at this length, and three sample; a trainer that does not fit is
    not proposed.
    """
    write_model(tmp_path / "model", QWEN3_4B)
    settings = {
        "run": "planned",
        "model": {"path": str(tmp_path / "model")},
        "tasks": {"dataset": {"kind": "arithmetic"}},
        "recipe": {"prompts_per_step": 8, "rollouts_per_prompt": 4},
        "trainer": {"activation_checkpointing": True},
        "generator": {"slots": 16, "gpu_memory_utilization": 0.78},
        "budget": {"steps": 9},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(settings))
    command = ("plan", "devices", "--devices", 4, "--config", tmp_path / "run.yaml", "--gpu", 80)
    answer = json.loads(rollcast(*command, "--json").stdout)
    predicted = answer["predicted"]
    assert (answer["recommended"]["trainer_devices"], answer["recommended"]["generators"]) == (1, 3)
    assert predicted["trainer_idle"] == answer["recommended"]["trainer_idle"]
    one_answer = {
        "step_seconds": 3600 / answer["recommended"]["steps_per_hour"],
        "generator_idle": 1 - answer["recommended"]["generator_load"],
    }
    assert {name: predicted[name] for name in one_answer} == pytest.approx(one_answer)
    check = ("config", "check", tmp_path / "run.yaml", "--elsewhere", "--gpu", 80, "--json")
    checked = rollcast(*check, "--trainer-ranks", 1, "--generators", 3)
    assert json.loads(checked.stdout)["predicted"] == pytest.approx(predicted), checked.stderr
    assert answer["rates"]["step_seconds"] == pytest.approx(predicted["update_seconds"])
    assert any(line.startswith("lengths: 4,301 tokens") for line in answer["assumed"])
    said = rollcast(*command, "--mean-tokens", 2000).stdout
    assert "predicted idle: trainer" in said
    assert "assumed: lengths: 2,000 tokens" in said
    small = rollcast(*command[:-1], 12)
    assert (small.returncode, "a GPU has 12.0 GB" in small.stderr) == (2, True)
    both = rollcast(*command, "--run-folder", tmp_path)
    assert both.returncode == 2
