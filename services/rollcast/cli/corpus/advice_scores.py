"""How much advice is worth, next to simple rules and to a reference that knows the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rollcast.cli.corpus.followed_advice import ADVICE, REFERENCE, FollowedAdvice
from rollcast.cli.corpus.votes import Tally, arithmetic_mean, repository_means
from rollcast.config.errors import UserError

KINDS = ("stop", "continue", "wait")
CHANCE_BOUNDS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Ends of the classes of chances. A class holds its lower end, and the last one its upper end
too."""
DIGITS = 3
"""Figures are added and compared as they are printed, so that a reader can check them."""


@dataclass(frozen=True)
class RuleScores:
    """Utility of a rule times 1,000, at each worth and in all."""

    at_each_worth: list[float]
    in_all: float


@dataclass(frozen=True)
class ChanceClass:
    """Chances in a range, and how often the gain came.

    Attributes:
        said, came: mean chance, and share of the questions whose gain reached the worth.
    """

    low: float
    high: float
    num_questions: int
    said: float
    came: float


@dataclass(frozen=True)
class AdviceScores:
    """Figures over all questions.

    Attributes:
        utility: by rule.
        over_reference: utility of the advice in all, divided by that of the reference; None if that
            gains nothing.
        said_at_half: first answers by kind.
        wrong_beyond_noise: of `stop` and `continue`: the gain differs from the worth by more than
            its noise, in the wrong direction.
        wrong: name and worth of each of these.
        useless_ended_early: of the questions on runs that gain nothing: ended before three
            quarters.
        chance_distance: mean difference of said and came over the questions; None if no chance was
            given.
    """

    num_runs: int
    num_repositories: int
    num_questions: int
    refused: list[str]
    worths: list[float]
    utility: dict[str, RuleScores]
    over_reference: float | None
    best_simple: str
    said_at_half: dict[str, int]
    wrong_beyond_noise: dict[str, Tally]
    wrong: dict[str, list[tuple[str, float]]]
    useless_ended_early: Tally
    chances: list[ChanceClass]
    chance_distance: float | None


def advice_scores(followed: Sequence[FollowedAdvice]) -> AdviceScores:
    """Raises UserError: there was no question."""
    if not followed:
        raise UserError(
            "--corpus: no curve is long enough for advice at half of it; add curves of 10 readings "
            "or more"
        )
    worths = sorted({run.worth for run in followed})
    utility = {rule: _rule_scores(rule, followed, worths) for rule in followed[0].utility}
    rules = [
        (scores.in_all, rule) for rule, scores in utility.items() if rule not in (ADVICE, REFERENCE)
    ]
    runs_by_kind = {kind: [run for run in followed if run.kind == kind] for kind in KINDS}
    wrong = {
        "stop": [run for run in runs_by_kind["stop"] if run.gain >= run.worth + run.noise],
        "continue": [run for run in runs_by_kind["continue"] if run.gain < run.worth - run.noise],
    }
    best = utility[REFERENCE].in_all
    chances = _chance_classes(followed)
    return AdviceScores(
        num_runs=len({run.name for run in followed}),
        num_repositories=len({run.repository for run in followed}),
        num_questions=len(followed),
        refused=[run.refused for run in followed if run.refused is not None],
        worths=worths,
        utility=utility,
        over_reference=round(utility[ADVICE].in_all / best, DIGITS) if best else None,
        best_simple=max(rules)[1],
        said_at_half={kind: len(runs) for kind, runs in runs_by_kind.items()},
        wrong_beyond_noise={
            kind: Tally(len(wrong_runs), len(runs_by_kind[kind]))
            for kind, wrong_runs in wrong.items()
        },
        wrong={
            kind: [(run.name, run.worth) for run in wrong_runs]
            for kind, wrong_runs in wrong.items()
        },
        useless_ended_early=Tally.count(
            # A run that gains less than .01 of pass rate after half has gained nothing; an end
            # after three quarters of its compute saves little.
            run.ended_at < 0.75
            for run in followed
            if run.gain < 0.01
        ),
        chances=chances,
        chance_distance=_distance(chances),
    )


def _rule_scores(
    rule: str, followed: Sequence[FollowedAdvice], worths: Sequence[float]
) -> RuleScores:
    at_each = []
    utility_digits = 1
    for worth in worths:
        runs = [run for run in followed if run.worth == worth]
        votes = repository_means(
            (run.repository for run in runs),
            (run.utility[rule] for run in runs),
        )
        # Utilities are reported in thousandths of a pass rate
        at_each.append(round(1000 * arithmetic_mean(votes), utility_digits))
    return RuleScores(at_each, round(sum(at_each), utility_digits))


def _chance_classes(followed: Sequence[FollowedAdvice]) -> list[ChanceClass]:
    """The classes that hold a chance."""
    outcomes = [(run.chance, run.gain >= run.worth) for run in followed if run.chance is not None]
    classes = []
    for low, high in pairwise(CHANCE_BOUNDS):
        inside = [
            (chance, is_paid)
            for chance, is_paid in outcomes
            if low <= chance < high or chance == high == CHANCE_BOUNDS[-1]
        ]
        if inside:
            said, came = (
                round(arithmetic_mean(values), DIGITS) for values in zip(*inside, strict=True)
            )
            classes.append(ChanceClass(low, high, len(inside), said, came))
    return classes


def _distance(chances: Sequence[ChanceClass]) -> float | None:
    if not chances:
        return None
    distance = sum(
        chance_class.num_questions * abs(chance_class.said - chance_class.came)
        for chance_class in chances
    )
    return round(distance / sum(chance_class.num_questions for chance_class in chances), DIGITS)
