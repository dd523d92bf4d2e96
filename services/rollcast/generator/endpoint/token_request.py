"""A request whose history is tokens: `/inference/v1/generate`, token in and token out, as vLLM has
it.

The history is matched with the record token by token, and nothing is rendered or parsed.
"""

import hashlib
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollcast.generator.endpoint.call import (
    SamplingRequest,
    TurnAnswer,
)
from rollcast.generator.endpoint.histories import RecordedTurn
from rollcast.generator.endpoint.protocol import (
    other_sampling,
    other_settings,
    turn_limits,
)
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.vllm import protocol
from rollcast.generator.vllm.engine_request import Finish
from rollcast.rollouts.records import Sampling

HONORED: Set[str] = {
    "max_tokens",
    "stop",
    "n",
    "logprobs",
    "detokenize",
    "output_kind",
    "include_stop_str_in_output",
}
"""Fields of `sampling_params`. Log-probs of the sampled tokens are always given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest(SamplingRequest):
    """A history of tokens, to which the model's next tokens are sampled."""

    token_ids: list[int]
    digest: bytes
    """The digest of the tokens."""

    @classmethod
    def read(
        cls, body: Any, sampling: Sampling, *, replaces: bool, is_retry: bool | None
    ) -> "TokenRequest":
        """Raises RefusedRequestError.

        `replaces`: the run's sampling is used in place of another.
        """
        if not isinstance(body, dict) or not isinstance(body.get("sampling_params", {}), dict):
            raise RefusedRequestError(
                "the body is not an object with token_ids and sampling_params"
            )
        token_ids: Any = body.get("token_ids")
        if not _are_tokens(token_ids):
            raise RefusedRequestError("token_ids: give a list of at least one token id")
        if body.get("stream"):
            raise RefusedRequestError("stream = true: all tokens come at the end; leave it out")
        settings: Mapping[str, Any] = body.get("sampling_params", {})
        replaced_settings = other_settings(settings, sampling, HONORED)
        if replaced_settings and not replaces:
            raise other_sampling(replaced_settings[0], settings[replaced_settings[0]])
        if settings.get("n") not in (None, 1):
            raise RefusedRequestError("n: one request samples one completion")
        max_tokens, stop = turn_limits(settings)
        content = np.asarray(token_ids, dtype=np.int64).tobytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return cls(
            token_ids=token_ids,
            digest=digest,
            max_tokens=max_tokens,
            stop=stop,
            replaced_settings=replaced_settings,
            is_retry=is_retry,
        )

    def prepare_turn(self, session: HarnessSession) -> tuple[int, int | None]:
        """Extend the longest recorded turn that the tokens begin with, or begin a sequence."""
        is_retry = session.histories.was_asked(self.digest)
        sequence, _ = session.match_tokens(
            self.token_ids,
            new="retried" if is_retry else "new",
            forked="retried" if is_retry else "forked",
        )
        return sequence, None

    def answer(
        self, session: HarnessSession, number: int, parent_turn: int | None, finish: Finish
    ) -> TurnAnswer:
        """Remember a turn of the record."""
        tokens_before, sampled = session.record.turn_tokens(number)
        turn = RecordedTurn(number, self.digest, (), time.monotonic(), is_retry=self.is_retry)
        session.histories.add(turn, [*tokens_before, *sampled])
        finish_reason = "stop" if finish == "stop" else "length"
        logprobs = session.record.turn_logprobs(number)
        return TurnAnswer({}, "", finish_reason, tokens_before, sampled, logprobs)


def generated_body(turn_answer: TurnAnswer, name: str, model: str) -> dict[str, Any]:
    """The answer, as vLLM's `GenerateTokensResponse` has it."""
    pairs = zip(turn_answer.token_ids, turn_answer.logprobs, strict=True)
    content = [{"token_id": token, "logprob": logprob} for token, logprob in pairs]
    choice = {
        "index": 0,
        "finish_reason": turn_answer.finish_reason,
        "token_ids": turn_answer.token_ids,
        "logprobs": {"content": content},
    }
    body = protocol.GenerateTokensResponse.model_validate(
        {"request_id": name, "model": model, "choices": [choice], "usage": turn_answer.usage}
    )
    response_body: dict[str, Any] = body.model_dump(exclude_none=True)
    return response_body


def _are_tokens(token_ids: object) -> bool:
    """Whether it is a list of token ids, of any length that a body may have."""
    # By exact type: True is an int in Python.
    if not isinstance(token_ids, list) or not token_ids or set(map(type, token_ids)) != {int}:
        return False
    # A token is 32 bits on the wire; the engine refuses those that its model does not have
    return bool(min(token_ids) >= 0 and max(token_ids) <= ((1 << 31) - 1))
