"""Advice that is followed, and its figures, against numbers that were computed by hand."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from itertools import pairwise

import pytest

from rollcast.cli.corpus.advice_scores import ChanceClass, advice_scores
from rollcast.cli.corpus.followed_advice import FollowedAdvice, HalfRun, follow, half_run
from rollcast.cli.corpus.protocol import ForecasterAnswer, GivenAdvice, Question
from rollcast.config.errors import UserError
from tests.cli.corpus.small_corpus import curve

RATES = [0.1] * 8 + [0.2, 0.3, 0.4, 0.5, 0.6]
"""Compute 0 to 12: half is compute 6, after seven readings; a level is the mean of three."""


class Script:
    """Answers one after the other, and keeps the questions."""

    def __init__(self, *answers: GivenAdvice | str) -> None:
        self._answers = list(answers)
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> ForecasterAnswer:
        self.questions.append(question)
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            return ForecasterAnswer(id=1, refused=answer)
        return ForecasterAnswer(id=1, advice=answer)


def wait(evaluations: int | None = None, chance: float | None = None) -> GivenAdvice:
    return GivenAdvice(kind="wait", evaluations=evaluations, chance=chance)


def run() -> HalfRun:
    found = half_run(curve("run", "a/b", RATES, first=0.0))
    assert found is not None
    return found


def test_a_wait_and_a_stop_cost_their_share_and_keep_the_better_level() -> None:
    script = Script(wait(2, 0.3), GivenAdvice(kind="stop", chance=0.01))
    followed = follow(run(), 0.06, script)
    first, second = script.questions
    assert (first.worth, first.budget, first.compute) == (0.06, 13.0, ())
    assert second.worth == pytest.approx(0.06 * (1 - 2 / 6))
    assert [len(question.curve.splitlines()) - 1 for question in script.questions] == [7, 9]
    assert followed.utility["advice"] == pytest.approx((0.1 + 0.1 + 0.2) / 3 - 0.1 - 0.06 * 2 / 6)
    assert (followed.kind, followed.chance, followed.refused) == ("wait", 0.3, None)
    assert followed.ended_at == pytest.approx(8 / 12)
    assert followed.gain == pytest.approx(0.4)
    assert followed.utility["reference"] == pytest.approx(0.34)
    assert followed.utility["always continue"] == pytest.approx(0.34)
    assert followed.utility["always stop"] == 0.0
    assert followed.utility["slope of the last fifth"] == 0.0, "the seen readings are flat"
    changes = [later - earlier for earlier, later in pairwise(RATES)]
    assert followed.noise == pytest.approx(statistics.pstdev(changes) / 3**0.5)


def test_stop_at_half_is_free_and_continue_goes_to_the_end() -> None:
    assert follow(run(), 0.06, Script(GivenAdvice(kind="stop"))).utility["advice"] == 0.0
    ended = follow(run(), 0.06, Script(GivenAdvice(kind="continue")))
    assert (ended.utility["advice"], ended.ended_at) == (pytest.approx(0.34), 1.0)
    losing = half_run(curve("run", "a/b", RATES[::-1], first=1.0))
    assert losing is not None
    lost = follow(losing, 0.06, Script(GivenAdvice(kind="continue")))
    assert lost.utility["advice"] == pytest.approx(-0.06), "the checkpoint of half is kept"


def test_a_wait_without_a_number_is_one_reading_and_twelve_waits_are_the_last() -> None:
    long = half_run(curve("long", "a/b", [0.5] * 60))
    assert long is not None
    script = Script(*[wait()] * 13)
    assert follow(long, 0.05, script).ended_at == 1.0
    assert [len(question.curve.splitlines()) - 1 for question in script.questions] == list(
        range(30, 42)
    )
    past_the_end = Script(wait(100))
    assert follow(long, 0.05, past_the_end).ended_at == 1.0
    assert len(past_the_end.questions) == 1


def test_a_refused_question_counts_as_continue() -> None:
    refused = follow(run(), 0.06, Script("too little"))
    assert (refused.kind, refused.chance, refused.ended_at) == ("continue", None, 1.0)
    assert refused.refused == "run, worth 0.06: too little"
    later = follow(run(), 0.06, Script(wait(1, 0.2), "too little"))
    assert (later.kind, later.chance, later.ended_at) == ("wait", 0.2, 1.0)


def test_rules_continue_if_their_slope_brings_the_worth() -> None:
    rising = half_run(curve("run", "a/b", [0.01 * n for n in range(20)]))
    assert rising is not None
    assert rising.promised_by_slope(5) == pytest.approx(0.01 * 10)
    bent = half_run(curve("run", "a/b", [0.0] * 5 + [0.01 * n for n in range(15)]))
    assert bent is not None
    assert bent.promised_by_slope(2) == pytest.approx(0.01 * 10), "the last five of ten readings"
    # Least squares over ln compute of 1 to 10, written out.
    logs = [math.log(x) for x in range(1, 11)]
    middle = sum(logs) / 10
    slope = sum((each - middle) * 0.01 * n for n, each in enumerate(logs)) / sum(
        (each - middle) ** 2 for each in logs
    )
    assert rising.promised_by_log_slope() == pytest.approx(slope * math.log(20 / 10))


def test_a_curve_scaled_by_its_own_range_is_not_asked() -> None:
    assert half_run(replace(curve("run", "a/b", RATES), is_scaled_by_own_range=True)) is None


def followed(
    repository: str,
    worth: float,
    gain: float,
    kind: str,
    chance: float | None,
    utility: float,
    ended_at: float = 1.0,
) -> FollowedAdvice:
    by_rule = {
        "advice": utility,
        "reference": max(0.0, gain - worth),
        "always stop": 0.0,
        "always continue": gain - worth,
    }
    return FollowedAdvice(
        repository, repository, worth, gain, 0.01, kind, chance, ended_at, by_rule
    )


def test_the_figures_by_hand() -> None:
    scores = advice_scores(
        [
            followed("a", 0.02, 0.10, "stop", 0.04, 0.0, 0.5),
            followed("a", 0.02, 0.00, "continue", 0.90, -0.02),
            followed("b", 0.02, 0.05, "continue", 1.0, 0.03),
            followed("a", 0.10, 0.105, "stop", 0.03, 0.0, 0.5),
            followed("a", 0.10, 0.00, "wait", 0.05, -0.05, 0.7),
            followed("b", 0.10, 0.05, "continue", None, -0.05),
        ]
    )
    assert scores.worths == [0.02, 0.1]
    # At .02: a has (0 - .02) / 2 = -.01, b .03: 10 in thousandths. At .1: (-.025 - .05) / 2.
    assert (scores.utility["advice"].at_each_worth, scores.utility["advice"].in_all) == (
        [10.0, -37.5],
        -27.5,
    )
    # At .02: (.04 + .03) / 2. At .1: (.0025 + 0) / 2 = .00125.
    assert scores.utility["reference"].at_each_worth == [35.0, 1.2]
    assert scores.over_reference == pytest.approx(-27.5 / 36.2, abs=1e-3)
    # always continue: (.03 + .03) / 2 = 30, and (-.0475 - .05) / 2 = -48.75.
    assert scores.best_simple == "always stop"
    assert scores.said_at_half == {"stop": 2, "continue": 3, "wait": 1}
    assert {kind: str(tally) for kind, tally in scores.wrong_beyond_noise.items()} == {
        "stop": "1 of 2",
        "continue": "2 of 3",
    }
    assert scores.wrong == {"stop": [("a", 0.02)], "continue": [("a", 0.02), ("b", 0.1)]}
    assert str(scores.useless_ended_early) == "1 of 2"
    assert scores.chances == [
        ChanceClass(0.0, 0.05, 2, 0.035, 1.0),
        ChanceClass(0.05, 0.2, 1, 0.05, 0.0),
        ChanceClass(0.8, 0.95, 1, 0.9, 0.0),
        ChanceClass(0.95, 1.0, 1, 1.0, 1.0),
    ]
    assert scores.chance_distance == pytest.approx((2 * 0.965 + 0.05 + 0.9) / 5)
    assert (scores.num_runs, scores.num_repositories, scores.num_questions) == (2, 2, 6)


def test_no_chance_is_no_distance_and_no_question_is_refused() -> None:
    assert advice_scores([followed("a", 0.02, 0.0, "stop", None, 0.0)]).chance_distance is None
    assert advice_scores([followed("a", 0.02, 0.0, "stop", None, 0.0)]).over_reference is None
    with pytest.raises(UserError, match="no curve is long enough"):
        advice_scores([])
