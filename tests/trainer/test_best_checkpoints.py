"""The trainer keeps the best checkpoint in addition to the newest ones, over restarts and kills."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rollcast.trainer.control.best_checkpoints import best_checkpoints
from rollcast.trainer.control.progress import CurveRow, Progress
from rollcast.trainer.control.state import SurvivingHistory
from rollcast.trainer.learner.checkpoint import checkpoints
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from tests.trainer.tiny_models import make_config

FIRST = SurvivingHistory((), 1)


def row(step: int, pass_rate: float) -> CurveRow:
    return (step, pass_rate, 0.01, step / 10, None, None, None, None)


def peak_at(peak: int, last: int) -> list[CurveRow]:
    """Rises to 0.6 at step `peak` and falls; an evaluation every 10 steps."""
    noise = np.random.default_rng(0).normal(0, 0.01, last)
    return [
        row(step, 0.6 - abs(step - peak) / 1000 + float(noise[step // 10]))
        for step in range(0, last + 1, 10)
    ]


def test_the_one_at_the_peak_stays_and_its_number_is_the_setting() -> None:
    rows = peak_at(100, 200)
    names = ["1.50", "1.100", "1.150", "1.170"]
    assert best_checkpoints(rows, FIRST, 1, names) == {"1.100"}
    assert best_checkpoints(rows, FIRST, 2, names) == {"1.100", "1.50"}
    assert best_checkpoints(rows, FIRST, 9, names) == set(names)
    assert best_checkpoints(rows, FIRST, 0, names) == set()


def test_a_candidate_stays_until_another_is_better_with_the_stated_chance() -> None:
    flat = [row(step, 0.5 + 0.02 * (-1) ** (step // 10)) for step in range(0, 201, 10)]
    assert best_checkpoints(flat, FIRST, 1, ["1.100", "1.160"]) == {"1.100"}
    assert best_checkpoints(peak_at(200, 200), FIRST, 1, ["1.100", "1.160"]) == {"1.160"}
    # A lucky reading between worse ones does not make it better.
    rows = peak_at(100, 200)
    rows[16] = row(160, 0.62)
    assert best_checkpoints(rows, FIRST, 1, ["1.100", "1.160"]) == {"1.100"}


def test_where_nothing_is_known_nothing_stays() -> None:
    assert best_checkpoints([], FIRST, 1, ["1.50", "1.60"]) == set()
    assert best_checkpoints([row(0, 0.5)], FIRST, 1, ["1.50"]) == {"1.50"}
    unusable = [row(step, 2.0) for step in (0, 10)]
    assert best_checkpoints(unusable, FIRST, 1, ["1.50", "1.60"]) == {"1.50"}


def test_one_of_a_lost_history_does_not_stay() -> None:
    """Incarnation 1 was killed at step 120, and its checkpoint of step 110 was damaged."""
    history = FIRST.continued_by(2, 90)
    names = ["1.80", "1.110", "2.120"]
    assert best_checkpoints(peak_at(110, 200), history, 1, names) == {"2.120"}
    assert best_checkpoints(peak_at(110, 200), history, 9, names) == {"1.80", "2.120"}


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_that_peaks_is_resumed_and_peaks_again(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    config = make_config(untied_model, tmp_path, trainer={"keep_checkpoints": 2})
    group = LearnerGroup.build(config, ranks)
    rows: list[CurveRow] = []
    group.choose_best = partial(best_checkpoints, rows, FIRST, 1)

    def train(incarnation: int, steps: range, peak: int) -> list[str]:
        for step in steps:
            # The newest step is evaluated while its checkpoint is written.
            rows[:] = peak_at(peak, step - 10)
            progress = Progress(step=step, curve=rows)
            group.save(PolicyVersion(incarnation, step), progress.as_json()).result()
            assert len(kept(folder)) <= 3
        return kept(folder)

    folder = tmp_path / "test" / "checkpoints"
    assert train(1, range(50, 301, 50), peak=150) == ["1.150", "1.250", "1.300"]
    # A new process has the readings of the checkpoint that it goes on from.
    newest = Progress.from_json(group.restore(checkpoints(folder)[0]))
    rows = list(newest.curve)
    assert len(rows) == 30
    group = LearnerGroup.build(config, ranks)
    group.choose_best = partial(best_checkpoints, rows, FIRST.continued_by(2, 300), 1)
    assert train(2, range(350, 401, 50), peak=150) == ["1.150", "2.350", "2.400"]
    assert train(2, range(450, 601, 50), peak=450) == ["2.450", "2.550", "2.600"]


def test_a_choice_that_fails_keeps_no_step_waiting(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    config = make_config(untied_model, tmp_path, trainer={"keep_checkpoints": 1})
    group = LearnerGroup.build(config, ranks)

    def fail(names: object) -> set[str]:
        raise MemoryError

    group.choose_best = fail
    for step in (1, 2, 3):
        group.save(PolicyVersion(1, step), {}).result(timeout=60)
    assert kept(tmp_path / "test" / "checkpoints") == ["1.1", "1.2", "1.3"]


@pytest.mark.parametrize("place", ["folder", "memory://best"])
def test_the_best_stays_in_a_folder_and_behind_a_url(
    place: str, ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    place = str(tmp_path / place) if "://" not in place else f"{place}/{tmp_path.name}"
    trainer = {"keep_checkpoints": 1, "checkpoints": place}
    group = LearnerGroup.build(make_config(untied_model, tmp_path, trainer=trainer), ranks)
    group.choose_best = partial(best_checkpoints, peak_at(100, 200), FIRST, 1)
    for step in (50, 100, 150, 200):
        group.save(PolicyVersion(1, step), {}).result()
    location = tmp_path / "folder" / "test" if "://" not in place else f"{place}/test"
    assert [str(one).rpartition("/")[2] for one in checkpoints(location)] == ["1.200", "1.100"]


def test_one_that_was_partly_removed_is_none(
    ranks: Ranks, trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    arguments = [str(untied_model), str(tmp_path)]
    child = trainers.start("tests.trainer.killed_while_removing", arguments, tmp_path / "log")
    assert child.wait(120) == -signal.SIGKILL, (tmp_path / "log").read_text()
    folder = tmp_path / "test" / "checkpoints"
    assert kept(folder) == [".partial-1.2", "1.1", "1.3"]
    config = make_config(untied_model, tmp_path, trainer={"keep_checkpoints": 1})
    group = LearnerGroup.build(config, ranks)
    newest, best = checkpoints(folder)
    assert group.restore(newest) == {"next": 3}
    assert group.restore(best) == {"next": 1}
    group.choose_best = lambda names: {"1.1"}
    group.save(PolicyVersion(2, 4), {}).result()
    assert kept(folder) == ["1.1", "2.4"]
