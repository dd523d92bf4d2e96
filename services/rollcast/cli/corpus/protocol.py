"""Questions to a forecaster, and its answers: one JSON object on one line each.

A question with `compute` asks for quantiles of the readings there, and for a verdict. A question
with `worth` asks for advice on the rest of the budget. docs/forecast-measured.md has an example.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

QUANTILE_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
MAX_TEXT = 1000
"""Characters of a verdict, a reason, or a mistake in an answer that are kept."""
Quantiles = tuple[FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat, FiniteFloat]
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Question(BaseModel):
    """One question about the beginning of one run."""

    model_config = ConfigDict(frozen=True)

    repository: str
    """Origin of the run: a forecaster that learned from real runs leaves this repository out."""
    metric: str
    """`heldout`: accuracy on prompts that are not trained on. `train`: training reward or
    accuracy."""
    curve: str
    """CSV text: step (compute, positive), pass_rate and, if it is known, standard_error."""
    compute: tuple[float, ...] = ()
    """Steps at which the reading is to be forecast. Empty = no forecast is asked for."""
    budget: float | None = None
    """Step at which the run would end. None = no advice is asked for."""
    worth: float | None = None
    """Gain in pass rate that the rest of the budget must bring to be worth its price. None = no
    advice is asked for."""


class GivenAdvice(BaseModel):
    """Whether to go on with a run."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["stop", "continue", "wait"]
    evaluations: Annotated[int, Field(ge=0)] | None = None
    """Readings to wait for, if the kind is `wait`. None or 0 = one."""
    chance: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Probability that the measured gain of the rest reaches `worth`. None = unknown."""


class ForecasterAnswer(BaseModel):
    """The answer to one question. Fields that were not asked for may be absent."""

    model_config = ConfigDict(frozen=True)

    id: int
    """The number of the question."""
    refused: Text | None = None
    """Why there is no answer. None = there is one."""
    quantiles: tuple[Quantiles, ...] = ()
    """The 5, 25, 50, 75 and 95 % quantiles of the reading at each `compute`, ascending."""
    verdict: Text | None = None
    """`forecastable`, `saturated` and `no_learning` count as decisions; any other word does not.
    None = no verdict."""
    advice: GivenAdvice | None = None

    @model_validator(mode="after")
    def _quantiles_ascend(self) -> ForecasterAnswer:
        for values in self.quantiles:
            if any(high < low for low, high in pairwise(values)):
                raise ValueError("must ascend")
        return self


def read_answer(line: bytes, number: int, question: Question) -> ForecasterAnswer:
    """The answer on a line.

    Args:
        number: of the question, from 1.

    Raises:
        ValueError: the line is not an answer to this question; gives the fault.
    """
    try:
        answer = ForecasterAnswer.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field_path = ".".join(map(str, first["loc"]))
        raise ValueError(f"{field_path}: {first['msg']}"[:MAX_TEXT].removeprefix(": ")) from None
    if answer.id != number:
        raise ValueError(f"id: is {answer.id} instead of {number}")
    if answer.refused is not None:
        return answer
    if len(answer.quantiles) != len(question.compute):
        raise ValueError(
            f"quantiles: {len(answer.quantiles)} rows, but compute has {len(question.compute)}"
        )
    if question.worth is not None and answer.advice is None:
        raise ValueError("advice: is absent")
    return answer
