"""The records of a trial: what a run's own engine and trainer make of a few prompts before the run
starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.runfolder.records import STRICT, Amount, Count, Share


@dataclass(frozen=True, slots=True)
class TriedTurn:
    """A turn of a tried episode: the text of the model, and the environment's answer;
    empty = none.
    """

    __pydantic_config__ = STRICT

    text: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class TriedCompletion:
    __pydantic_config__ = STRICT

    prompt: str
    text: str
    num_prompt_tokens: Count
    num_tokens: Count
    truncated: bool
    """Cut off by the token budget."""
    reward: Share
    status: str
    """ok, wrong, timeout or error, as for a rollout."""
    failure: str = ""
    """The reason if there is no verdict."""
    environment: str = ""
    """The environment of an episode; `text` is its last turn. Empty = a single answer."""
    end: str = ""
    """How the episode ended."""
    turns: tuple[TriedTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Record of a trial of a run: a few completions of the real engine, graded, and how long they
    took.
    """

    __pydantic_config__ = STRICT

    start_seconds: Amount
    """Until the engine was ready, weights included."""
    sampling_seconds: Amount
    """Of all completions, which were sampled in parallel, without their grading."""
    grading_seconds: Amount
    """Sum over all gradings."""
    completions: tuple[TriedCompletion, ...]


@dataclass(frozen=True, slots=True)
class UpdateTrialRecord:
    """One optimizer step on as many rollouts, of the lengths that were tried."""

    __pydantic_config__ = STRICT

    passes_seconds: Amount
    """Forward and backward of all of them, on the ranks side by side; grows with their number."""
    rest_seconds: Amount
    """Clipping and the optimizer itself; the same for a batch of any size."""
    num_devices: Count
    """Devices of all ranks: GPUs, or CPU cores."""
