"""`rollcast sweep decide`: the policy of a sweep for other programs, one JSON object a line."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rollcast.cli.corpus.single_thread import use_one_thread
from rollcast.config.errors import UserError
from rollcast.config.json_text import to_json

if TYPE_CHECKING:
    from rollcast.scaling.sweep.policy import SweepDecision
    from rollcast.scaling.sweep.prior import SweepPrior


def decide() -> None:
    """Answer questions on where to spend the rest of a sweep's budget, one JSON object a line.

    \b
    A question, here in three lines:
        {"arms": [{"name": "a", "spent": 0.35, "readings": [[10, 0.31, null], [20, 0.36, 0.02]]},
                  {"name": "b", "spent": 0.05, "readings": [[10, 0.29, null]]}],
         "end": 100, "budget_left": 1.2, "last": false, "prior": null}
    The answer:
        {"run": ["b"], "share": 0.2, "gain": 0.01, "choose": "a",
         "chance": {"a": 0.6, "b": 0.4}, "level": {"a": 0.35, "b": 0.31}}

    The arm in `run` goes on, then ask again; [] when `last` is true or no arm can go on. `share` is
    the part of a whole run from which `gain` is expected. `choose` is the arm to use now, `chance`
    and `level` those of each arm at the end.

    Questions come on standard input.

    \b
    rollcast sweep decide
    """
    # Matrices of some hundred rows: threads only wait for one another.
    use_one_thread()
    from pydantic import ValidationError

    from rollcast.cli.sweep.question import SweepQuestion
    from rollcast.scaling.sweep.policy import decide as decide_sweep
    from rollcast.scaling.sweep.state import SweepRun, SweepState

    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        try:
            question = SweepQuestion.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"])) or "the line"
            raise UserError(f"line {number}: {field}: {first['msg']}; see --help") from None
        runs = [SweepRun(arm.name, arm.spent, arm.readings) for arm in question.arms]
        budget = 0.0 if question.last else question.budget_left
        decision = decide_sweep(SweepState(runs, question.end, budget), _prior(question.prior))
        typer.echo(to_json(decision_as_json(decision, [run.arm for run in runs])))
        sys.stdout.flush()


def decision_as_json(decision: SweepDecision, names: list[str]) -> dict[str, Any]:
    """The decision with `names` of the runs."""
    return {
        "run": [] if decision.run is None else [names[decision.run]],
        "share": decision.share,
        "gain": decision.gain,
        "choose": decision.best.arm,
        "chance": {outlook.arm: outlook.chance for outlook in decision.arms},
        "level": {outlook.arm: outlook.level for outlook in decision.arms},
    }


@cache
def _prior(path: Path | None) -> SweepPrior:
    from rollcast.scaling.sweep.prior import learned_sweep_prior, read_sweep_prior

    try:
        return learned_sweep_prior() if path is None else read_sweep_prior(path)
    except ValueError as error:
        raise UserError(str(error)) from None
