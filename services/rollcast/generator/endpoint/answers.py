"""Answers in the form of the OpenAI API, as vLLM's protocol classes write them."""

import time
from collections.abc import Mapping
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


NO_TURN = {"logprobs": None, "token_ids": None}
"""The fields of a choice without the turn's end."""


def turn_fields(turn_answer: TurnAnswer, chat: ChatRequest, decode: Decode) -> dict[str, Any]:
    """Log-probs and tokens of the turn (None = the request does not want them), and its stop
    text.
    """
    logprobs = None
    if chat.wants_logprobs:
        pairs = zip(turn_answer.token_ids, turn_answer.logprobs, strict=True)
        logprobs = {
            "content": [
                _logprob(token, logprob, None if chat.names_tokens_by_id else decode([token]))
                for token, logprob in pairs
            ]
        }
    return {
        "logprobs": logprobs,
        "token_ids": turn_answer.token_ids if chat.wants_token_ids else None,
        "stop_reason": turn_answer.stop_text,
    }


def completion_body(
    turn_answer: TurnAnswer, chat: ChatRequest, decode: Decode, name: str, model: str
) -> dict[str, Any]:
    """A whole chat completion. `name`: of the completion."""
    choice = {
        "index": 0,
        "message": {**turn_answer.message, "reasoning": turn_answer.reasoning or None},
        "finish_reason": turn_answer.finish_reason,
        **turn_fields(turn_answer, chat, decode),
    }
    body = {
        "id": name,
        "model": model,
        "choices": [choice],
        "usage": turn_answer.usage,
        "prompt_token_ids": turn_answer.prompt_token_ids if chat.wants_token_ids else None,
    }
    completion: dict[str, Any] = protocol.ChatCompletionResponse.model_validate(body).model_dump()
    return completion


def chunk_body(
    name: str,
    model: str,
    delta: dict[str, Any] | None,
    finish_reason: str | None = None,
    *,
    turn: Mapping[str, Any] = NO_TURN,
    prompt_token_ids: list[int] | None = None,
    usage: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """One part of a streamed completion. No delta: the part with the usage, which has no choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason, **turn}
    body = {
        "id": name,
        "model": model,
        "choices": [] if delta is None else [choice],
        "created": int(time.time()),
        "prompt_token_ids": prompt_token_ids,
    }
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
    unsent_deltas = deltas.take_new_parts(
        turn_answer.reasoning, str(turn_answer.message["content"])
    )
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
