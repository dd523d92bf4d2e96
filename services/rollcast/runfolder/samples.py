"""Lines of samples.jsonl: what the model wrote at an evaluation, an episode turn by turn with its
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.runfolder.records import STRICT, Amount, Count, Measured


@dataclass(frozen=True, slots=True)
class SampledLeg:
    """Consecutive tokens of one kind and one version."""

    __pydantic_config__ = STRICT

    kind: str
    """thinking, phrase, answer; or given: text of the environment or the chat template."""
    version: str
    """Version of the weights that sampled them, or that computed the KV entries of given ones.
    Empty = unknown."""
    tokens: list[str]
    """Texts of the tokens, a whole given text as one. A character of several tokens is the text of
    its last one."""
    logprobs: list[Measured]
    """Nats, of each token. Empty for given text."""
    is_trained: bool
    """Whether its tokens carry loss."""
    num_left_out: Count = 0
    """Tokens that are not recorded, to bound the record; `tokens` is then empty."""


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """A turn of the model, and what the environment answered."""

    __pydantic_config__ = STRICT

    number: Count
    """1 for the first turn of the episode."""
    sequence: Count
    """The token sequence that it belongs to: 0 for the first, then a branch."""
    legs: list[SampledLeg]
    prompt: str = ""
    """Text that the model read before a branch's first turn; a long one is cut in the middle. Empty
    for other turns."""
    reward: Measured = 0.0
    """The environment's reward for this turn alone."""
    tool_calls: Count = 0
    malformed_calls: Count = 0
    environment_seconds: Amount = 0.0


@dataclass(frozen=True, slots=True)
class SampledEpisode:
    """An episode in an environment."""

    __pydantic_config__ = STRICT

    environment: str
    end: str
    """Why it ended: an `EpisodeEnd`."""
    reason: str
    """Why the environment failed. Empty = it has not."""
    turns: list[SampledTurn]
    """The first and the last ones of a long episode."""
    num_turns: Count
    environment_seconds: Amount
    sampling_seconds: Amount
    restarts: Count


@dataclass(frozen=True, slots=True)
class SampledCompletion:
    """A completion, as text."""

    __pydantic_config__ = STRICT

    prompt: str
    """Text that the model read, special tokens included; a long one is cut in the middle."""
    completion: str
    """The answer, cut in the same way."""
    reward: Measured
    status: str
    """`ok` and `wrong` are verdicts; otherwise the grading failed, and the reward says nothing."""
    num_tokens: Count
    truncated: bool
    """The token budget ended it."""
    episode: SampledEpisode | None = None
    """None = one answer, without an environment."""
    prompt_id: str = ""
    """Empty = of a release that did not store it."""


@dataclass(frozen=True, slots=True)
class SamplesRecord:
    """One completion of each of a few prompts, the same prompts at every evaluation."""

    __pydantic_config__ = STRICT

    incarnation: Count
    step: Count
    dataset: str
    samples: list[SampledCompletion]
    at: float
    """Unix seconds."""
