"""POST /api/push: the evaluations of a run of any trainer, answered with its forecast and advice.

The first push of a point counts: a later one of the same run, incarnation and step is a repetition.
A trainer that starts again from a checkpoint counts its incarnation up; older evaluations beyond
its first step no longer count.
"""

import math
import time
from typing import Annotated

from fastapi import APIRouter, Body, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field

from rollcast.config.bounds import MOST_STEPS
from rollcast.connections.token_gate import presents
from rollcast.curves.amounts import MEDIAN_AND_90
from rollcast.curves.answer import law_of_run
from rollcast.curves.columns.units import TIME_UNITS
from rollcast.curves.evaluations import CurvePoint, validate_evaluation
from rollcast.curves.run_forecast import RunForecast
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import PushedRun
from rollcast.forecaster.refusals import refusals
from rollcast.forecaster.schema import Answer, Compute, PositiveCompute, Share
from rollcast.scaling.decisions.advice import Advice

PUSH_PATH = "/api/push"
MAX_POINTS = 1_000
"""Most points in one request."""
Name = Annotated[str, Field(min_length=1, max_length=200)]


class PushPoint(BaseModel):
    """One evaluation."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    step: Annotated[int, Field(ge=0, le=MOST_STEPS)]
    pass_rate: Share
    compute: Compute | None = None
    """Since the start, in the unit of the run; null = the step."""
    standard_error: Share | None = None
    truncation_ratio: Share | None = None
    """Share of the answers that were cut off; only the verdict looks at it."""
    incarnation: Annotated[int, Field(ge=1, le=10**6)] = 1
    """Which start of the trainer made it: one more after every restart from a checkpoint."""


class PushRequest(BaseModel):
    """Evaluations of one run."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    run: Name
    points: Annotated[list[PushPoint], Field(max_length=MAX_POINTS)]
    unit: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[\w /.-]+$")] = "steps"
    """Unit of compute: steps, tokens, device-hours; the same at every push."""
    budget: PositiveCompute | None = None
    """Compute at which the run will end; null = as pushed before."""
    worth: Share | None = None
    """Gain in pass rate that the rest would be paid for, for this answer; null = 0.02 for a
    doubling of compute."""
    price: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Price of one unit of compute, for this answer."""


class PushAnswer(Answer):
    run: str
    new: int
    """Points that were not known yet."""
    repeated: int
    """Points that were known, or beyond the most that a run may have; their first reading
    stands."""
    step: int | None
    """Step of the run's newest evaluation, which an older run of the same name may have pushed;
    null before the first evaluation after step 0."""
    advice: str | None
    """stop, continue or wait; null before the first evaluation after step 0."""
    headline: str | None
    """Null also before there are enough evaluations for a forecast."""
    reason: str | None
    metrics: dict[str, float]
    """Metrics to log together with the trainer's own."""


def push_router(engine: ForecastEngine, board: Board, token: str | None) -> APIRouter:
    """The one route. Without a token every push is refused."""

    def admit(request: Request) -> None:
        if token is None:
            raise HTTPException(
                403, "pushing is off; set forecaster.push_token, or ROLLCAST_PUSH_TOKEN"
            )
        if not presents(request.scope, token.encode()):
            raise HTTPException(
                401,
                "wrong or missing token; present forecaster.push_token as bearer token",
                {"www-authenticate": "Bearer"},
            )

    router = APIRouter()

    @router.post(
        PUSH_PATH, dependencies=[Depends(admit)], responses=refusals(400, 401, 403, 413, 422, 503)
    )
    def push(request: Annotated[PushRequest, Body()]) -> PushAnswer:
        """Evaluations of a run of any trainer; its forecast and advice come back."""
        try:
            _check_name(request.run)
            points = [_evaluation(request.run, request.unit, point) for point in request.points]
            new = engine.push(PushedRun(request.run, request.unit, request.budget), points)
        except TimeoutError as error:
            raise HTTPException(503, str(error)) from error
        except ValueError as error:
            raise HTTPException(422, str(error)) from error
        return _answer(request, new, board.get(request.run))

    return router


def _evaluation(run: str, unit: str, point: PushPoint) -> CurvePoint:
    """Raises ValueError: a value is out of bounds."""
    values = point.model_dump()
    if point.compute is None:
        values["compute"] = float(point.step)
    # Nothing starts up in steps or tokens. A first interval that is longer is one, as in a file.
    values["start_up"] = None if unit in TIME_UNITS else 0.0
    values |= dict.fromkeys(("trained_tokens", "samples"))
    return validate_evaluation(CurvePoint(run, "", at=time.time(), **values))


def _check_name(run: str) -> None:
    """Raises ValueError: no page could be asked for under this name."""
    if not run.isprintable() or "/" in run or run in (".", ".."):
        raise ValueError(
            f"run {run[:50]!r}: give printable characters without a slash, and neither . nor .."
        )


def _answer(request: PushRequest, new: int, item: RunForecast | None) -> PushAnswer:
    advice = None if item is None else item.advice(worth=request.worth, price=request.price)
    return PushAnswer(
        run=request.run,
        new=new,
        repeated=len(request.points) - new,
        step=None if item is None else item.newest.step,
        advice=None if advice is None else str(advice.kind),
        headline=None if advice is None else advice.headline,
        reason=None if advice is None else advice.reason,
        metrics={} if item is None or advice is None else _metrics(item, advice),
    )


def _metrics(item: RunForecast, advice: Advice) -> dict[str, float]:
    """Flat numbers by name, as trackers take them; unknown ones are left out."""
    law = law_of_run(item)
    numbers: dict[str, float | None] = {
        "rollcast/ceiling": None if law is None else law.asymptote["q50"],
        "rollcast/ceiling_low": None if law is None else law.asymptote["q05"],
        "rollcast/ceiling_high": None if law is None else law.asymptote["q95"],
        "rollcast/stop": float(advice.kind == "stop"),
        "rollcast/wait_evaluations": float(advice.evaluations),
        "rollcast/cost_of_rest": advice.rest.compute,
    }
    if item.has_forecast:
        end = item.end if item.end is not None else advice.budget
        reading = map(float, item.reading([end], MEDIAN_AND_90)[:, 0])
        numbers |= dict(
            zip(("rollcast/end_low", "rollcast/end", "rollcast/end_high"), reading, strict=True)
        )
    numbers["rollcast/chance"] = advice.chance
    numbers["rollcast/price_of_rest"] = advice.rest.money
    for name, stretch in (("next_tenth", advice.soon), ("rest", advice.rest)):
        numbers[f"rollcast/gain_of_{name}"] = None if stretch.gain is None else stretch.gain[1]
    return {
        name: value for name, value in numbers.items() if value is not None and math.isfinite(value)
    }
