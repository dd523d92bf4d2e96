"""Answers in the form of the OpenAI API, as vLLM's protocol classes write them."""

import time
from typing import Any

from rollcast.generator.endpoint.call import Answered
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.streaming import Deltas
from rollcast.generator.vllm.protocol import chat_answer, chat_part

KINDS = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}


def completion_body(answered: Answered, name: str, model: str, logprobs: list[dict[str, Any]] | None) -> dict[str, Any]:
    """A whole chat completion. `name`: of the completion."""
    message = {**answered.message, "reasoning": answered.reasoning or None}
    choice = {"index": 0, "message": message, "finish_reason": answered.finish_reason, "logprobs": _content(logprobs)}
    body = chat_answer().model_validate({"id": name, "model": model, "choices": [choice], "usage": usage(answered)})
    found: dict[str, Any] = body.model_dump()
    return found


def chunk_body(
    name: str,
    model: str,
    delta: dict[str, Any] | None,
    finish_reason: str | None = None,
    *,
    answered: Answered | None = None,
    logprobs: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """One part of a streamed completion. No delta: the part with the usage, which has no choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason, "logprobs": _content(logprobs)}
    body = {"id": name, "model": model, "choices": [] if delta is None else [choice], "created": int(time.time())}
    if answered is not None:
        body["usage"] = usage(answered)
    found: dict[str, Any] = chat_part().model_validate(body).model_dump(exclude_none=True)
    for one in found["choices"]:
        one.setdefault("finish_reason", None)
    return found


def final_deltas(answered: Answered, deltas: Deltas) -> list[dict[str, Any]]:
    """What of a message was not streamed."""
    found = deltas.rest(answered.reasoning, str(answered.message["content"]))
    calls = answered.message.get("tool_calls") or ()
    if calls:
        found.append({"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]})
    return found


def usage(answered: Answered) -> dict[str, int]:
    """Numbers of tokens."""
    sampled = len(answered.token_ids)
    return {
        "prompt_tokens": answered.num_prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": answered.num_prompt_tokens + sampled,
    }


def error_body(refusal: RefusedRequestError) -> dict[str, Any]:
    """A refusal in OpenAI's form."""
    kind = KINDS.get(refusal.status, "invalid_request_error")
    return {"error": {"message": refusal.sentence, "type": kind, "param": None, "code": refusal.code}}


def models_body(model: str) -> dict[str, Any]:
    """The one model that is served."""
    card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "rollcast"}
    return {"object": "list", "data": [card]}


def _content(logprobs: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if logprobs is None else {"content": logprobs}
