"""An engine without a model that answers each request with the next of given texts, as tokens."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from rollcast.generator.vllm.engine_request import EngineRequest, Sampled
from rollcast.rollouts.records import VersionSpan
from rollcast.wire.version import PolicyVersion

FIRST_VERSION = PolicyVersion(1, 1)
CALL = re.compile(r"(?<=<tool_call>)(.*?)(?=</tool_call>)", re.DOTALL)


@dataclass(eq=False)
class TextEngine:
    """`texts`: those to come; the engine is never asked for one more."""

    tokenizer: Any
    version: PolicyVersion = FIRST_VERSION
    texts: deque[str] = field(default_factory=deque)
    answers: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """Tokens of each request and of its answer."""
    failed: bool = False

    @property
    def newest_version(self) -> PolicyVersion:
        return self.version

    async def sample(self, request: EngineRequest) -> Sampled:
        text = self.texts.popleft()
        await asyncio.sleep(0)
        token_ids = self.encode(text)[: request.max_tokens]
        self.answers.append((list(request.token_ids), token_ids))
        has_ended = token_ids[-1] in (self.tokenizer.eos_token_id, *request.stop_token_ids)
        stop_text = next((stop for stop in request.stop if stop in text), None)
        return Sampled(
            request_id=f"request-{len(self.answers)}",
            token_ids=token_ids,
            logprobs=[-1.0] * len(token_ids),
            spans=[VersionSpan(self.version, 0, len(token_ids))],
            finish="length" if stop_text is None and not has_ended else "stop",
            num_cached_tokens=len(request.token_ids),
            stop_text=None if has_ended else stop_text,
        )

    def encode(self, text: str) -> list[int]:
        """Calls letter by letter, which a model may sample and no tokenizer makes of their text: so
        a record that is made of the text again has other tokens.
        """
        pieces = CALL.split(text)
        tokens: list[int] = []
        for number, piece in enumerate(pieces):
            for text_part in piece if number % 2 else [piece]:
                tokens += self.tokenizer(text_part, add_special_tokens=False).input_ids
        return tokens

    def decode(self, token_ids: list[int]) -> str:
        text: str = self.tokenizer.decode(token_ids)
        return text

    def abort(self, request: EngineRequest) -> None:
        request.aborted = True

    def versions_since(self, request: EngineRequest) -> set[PolicyVersion]:
        return {self.version}

    async def observe(self) -> None:
        pass
