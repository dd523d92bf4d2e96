"""Answers in the form of the OpenAI API, as vLLM's protocol classes write them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.generator.completion import Decode
from rollcast.generator.endpoint.call import TurnAnswer
from rollcast.generator.endpoint.chat_request import ChatRequest
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.streaming import Deltas
from rollcast.generator.vllm import protocol

UNTRAINED = "-untrained"
"""After the model's name: requests for it are answered and never trained."""
KINDS = {401: "authentication_error", 404: "not_found_error", 500: "server_error"}


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts of an answer besides its text."""

    prompt_token_ids: list[int] | None
    """None = the request does not want them."""
    choice_fields: Mapping[str, Any]
    """Log-probs and tokens of the turn (None = the request does not want them), and its stop
    text."""
    usage: Mapping[str, int]
    """Numbers of tokens."""


NO_EXTRAS = Extras(None, {"logprobs": None, "token_ids": None}, {})


def extras(turn_answer: TurnAnswer, chat: ChatRequest, decode: Decode) -> Extras:
    """The extras of the request's answer."""
    logprobs = None
    if chat.wants_logprobs:
        pairs = zip(turn_answer.token_ids, turn_answer.logprobs, strict=True)
        logprobs = {
            "content": [
                _logprob(token, logprob, None if chat.names_tokens_by_id else decode([token]))
                for token, logprob in pairs
            ]
        }
    token_ids = turn_answer.token_ids if chat.wants_token_ids else None
    num_prompt_tokens = len(turn_answer.prompt_token_ids)
    num_sampled_tokens = len(turn_answer.token_ids)
    return Extras(
        turn_answer.prompt_token_ids if chat.wants_token_ids else None,
        {
            "logprobs": logprobs,
            "token_ids": token_ids,
            "stop_reason": turn_answer.stop_text,
        },
        {
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": num_sampled_tokens,
            "total_tokens": num_prompt_tokens + num_sampled_tokens,
        },
    )


def completion_body(turn_answer: TurnAnswer, name: str, model: str, more: Extras) -> dict[str, Any]:
    """A whole chat completion. `name`: of the completion."""
    message = {**turn_answer.message, "reasoning": turn_answer.reasoning or None}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": turn_answer.finish_reason,
        **more.choice_fields,
    }
    body = {"id": name, "model": model, "choices": [choice], "usage": more.usage}
    completion = protocol.ChatCompletionResponse.model_validate(
        {**body, "prompt_token_ids": more.prompt_token_ids}
    )
    response_body: dict[str, Any] = completion.model_dump()
    return response_body


def chunk_body(
    name: str,
    model: str,
    delta: dict[str, Any] | None,
    finish_reason: str | None = None,
    *,
    more: Extras = NO_EXTRAS,
    usage: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """One part of a streamed completion. No delta: the part with the usage, which has no choice."""
    choice = {
        "index": 0,
        "delta": delta or {},
        "finish_reason": finish_reason,
        **more.choice_fields,
    }
    body = {
        "id": name,
        "model": model,
        "choices": [] if delta is None else [choice],
        "created": int(time.time()),
    }
    body["prompt_token_ids"] = more.prompt_token_ids
    if usage is not None:
        body["usage"] = usage
    chunk: dict[str, Any] = protocol.ChatCompletionStreamResponse.model_validate(body).model_dump(
        exclude_none=True
    )
    # `exclude_none` drops the key, which the OpenAI API requires in every choice.
    for chunk_choice in chunk["choices"]:
        chunk_choice.setdefault("finish_reason", None)
    return chunk


def final_deltas(turn_answer: TurnAnswer, deltas: Deltas) -> list[dict[str, Any]]:
    """The parts of a message that were not streamed."""
    unsent_deltas = deltas.rest(turn_answer.reasoning, str(turn_answer.message["content"]))
    calls = turn_answer.message.get("tool_calls") or ()
    if calls:
        unsent_deltas.append(
            {"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}
        )
    return unsent_deltas


def error_body(refusal: RefusedRequestError) -> dict[str, Any]:
    """A refusal in OpenAI's form."""
    kind = KINDS.get(refusal.status, "invalid_request_error")
    return {
        "error": {"message": refusal.sentence, "type": kind, "param": None, "code": refusal.code}
    }


def models_body(model: str) -> dict[str, Any]:
    """The one model that is served, under both of its names."""
    card = {"object": "model", "created": int(time.time()), "owned_by": "rollcast"}
    return {"object": "list", "data": [{"id": name, **card} for name in (model, model + UNTRAINED)]}


def _logprob(token: int, logprob: float, text: str | None) -> dict[str, Any]:
    """One token's entry. No text: it is named by its id."""
    name = f"token_id:{token}" if text is None else text
    return {"token": name, "logprob": logprob, "bytes": list(name.encode()), "top_logprobs": []}
