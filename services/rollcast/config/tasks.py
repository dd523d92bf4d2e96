"""Settings of prompts and their verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings


class ArithmeticDataset(Settings):
    kind: Literal["arithmetic"] = "arithmetic"
    """Generated additions, answered with digit-wise worked steps."""
    name: str = "arithmetic"
    """Label of the data set in metrics."""
    max_digits: Annotated[int, Field(ge=1, le=12)] = 4
    """Largest number of digits of an operand; more digits are harder."""
    size: Annotated[int, Field(ge=1)] = 4_000
    """Number of distinct training prompts."""
    seed: int = 1
    """Of the draw of the prompts."""


class JsonlDataset(Settings):
    kind: Literal["jsonl"] = "jsonl"
    """One JSON object per line."""
    name: str
    """Label of the data set in metrics."""
    path: Path
    """The file."""
    prompt_field: str = "prompt"
    """Field that holds the prompt's text."""
    answer_field: str = "answer"
    """Field that holds the reference answer."""
    verifier: str = "exact"
    """Name of the verifier that grades completions: exact, arithmetic, math, or one added by an entry point."""
    template: str = "{prompt}"
    """Text put around the prompt; `{prompt}` marks its place."""


Dataset = Annotated[ArithmeticDataset | JsonlDataset, Field(discriminator="kind")]


class Evaluation(Settings):
    """Held-out evaluation, mean@`rollouts_per_prompt` (paper section 2.1)."""

    num_prompts: Annotated[int, Field(ge=1)] = 1_000
    """Held-out prompts, taken out of the data set before training; 1,000 in the paper."""
    rollouts_per_prompt: Annotated[int, Field(ge=1)] = 16
    """Completions per held-out prompt."""
    every_steps: Annotated[int, Field(ge=1)] = 100
    """Optimizer steps between two evaluations; one is also made before the first step and after the last."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """An evaluation that has not come back by then is closed with what it has and counted."""
    max_slot_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of a generator's slots that evaluation may take while training prompts wait."""


class Tasks(Settings):
    dataset: Dataset = ArithmeticDataset()
    """What is trained on; the evaluation's prompts are held out from it."""
    evaluation: Evaluation = Evaluation()
    """How the curve is measured."""
