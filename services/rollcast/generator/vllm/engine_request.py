"""One request to the engine, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rollcast.rollouts.records import RoutedExperts, Sampling, VersionSpan
from rollcast.wire.version import PolicyVersion

Finish = Literal["stop", "length", "abort"]


class BadRequestError(ValueError):
    """The engine refused a request: its task cannot be answered by this model."""


@dataclass(eq=False)
class EngineRequest:
    """The salt is chosen when it is submitted, by the version then held."""

    token_ids: list[int]
    max_tokens: int
    sampling: Sampling
    seed: int | None
    salt: Callable[[PolicyVersion], str]
    first_version: PolicyVersion | None = None
    request_id: str = ""
    """Empty until submitted."""
    routed_from: int = 0
    """Number of leading tokens whose expert choices are not returned (MoE models only)."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end it besides the model's own end of text; the one that did is the last of its
    tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end it; the token that completes one is its last."""
    on_tokens: Callable[[list[int]], None] | None = None
    """Called with all its tokens so far while it runs. None = they are wanted at its end only."""
    aborted: bool = False
    rebuilds: list[tuple[int, int]] = field(default_factory=list)
    """(output tokens, kept) of each preemption so far, as of the last `Engine.observe`."""

    def sampling_parameters(self) -> Any:
        """The request in vLLM's own words. Raises vLLM's VLLMClientError."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=self.sampling.temperature,
            top_p=self.sampling.top_p,
            top_k=self.sampling.top_k,
            seed=self.seed,
            max_tokens=self.max_tokens,
            stop_token_ids=list(self.stop_token_ids),
            # 0: the log-prob of the sampled token alone; flat: one array, not a dictionary for
            # each token.
            logprobs=0,
            flat_logprobs=True,
            stop=list(self.stop),
            detokenize=bool(self.stop),
            # One message for the whole request, not one for each token, unless they are read.
            output_kind=RequestOutputKind.FINAL_ONLY
            if self.on_tokens is None
            else RequestOutputKind.CUMULATIVE,
            routed_experts_prompt_start=self.routed_from,
        )


@dataclass(frozen=True)
class Sampled:
    """The result of one request; `spans` count from its first token."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    spans: list[VersionSpan]
    finish: Finish
    num_cached_tokens: int
    stop_text: str | None = None
    """The text of `EngineRequest.stop` that ended it. None = a token that ends turns, or a
    budget."""
    routed_experts: RoutedExperts | None = None
    """[tokens from `routed_from` on without the last, routing layers, choices]; None = not returned
    by this engine."""
