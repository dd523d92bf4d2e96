"""The settings of a chat completion request that are honored, and those that are refused.

`messages` checks the messages, which are taken as they were sent. vLLM's protocol classes, which
the engine has loaded already, check the rest. They see no message: they make an error for each kind
that each element could be.

    honored    messages, tools, tool_choice auto|none, max_tokens, max_completion_tokens, stop,
               stream, logprobs, return_token_ids and return_tokens_as_token_ids of vLLM
    the run's  temperature, top_p, top_k, and every other setting of sampling: refused if it
               differs, or replaced (parallel_tool_calls false and a tool_choice that forces a call
               are grammars, so they sample too)
    refused    n > 1, another model, content that is not text
    ignored    settings that change no token: user, metadata, store, ...
"""

import reprlib
from collections.abc import Mapping, Set
from typing import Any

from rollcast.generator.endpoint.bodies import MAX_DEPTH, measure
from rollcast.generator.endpoint.chat_request import ChatRequest
from rollcast.generator.endpoint.histories import history_digests
from rollcast.generator.endpoint.messages import read_messages
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.vllm import protocol as vllm_protocol
from rollcast.rollouts.records import Sampling

HONORED: Set[str] = {
    *(
        "messages",
        "model",
        "tools",
        "tool_choice",
        "max_tokens",
        "max_completion_tokens",
        "stop",
    ),
    *("stream", "stream_options", "n", "parallel_tool_calls", "logprobs"),
    *("return_token_ids", "return_tokens_as_token_ids"),
}
IGNORED: Set[str] = {
    *(
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "request_id",
    ),
    *("session_id", "include_reasoning"),
}
"""Settings that change no token."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "ignore_eos": (False,),
    "echo": (False,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
"""Values of settings that change nothing."""
NO_HISTORY = ({"role": "user", "content": ""},)
"""Messages for vLLM's classes, which do not take a request without."""
MAX_MESSAGES = 10_000
MAX_TOOLS = 512


def read_request(
    body: Any, model: str, sampling: Sampling, *, replaces: bool, is_retry: bool | None
) -> ChatRequest:
    """Raises RefusedRequestError.

    `model`: its name. `replaces`: the run's sampling is used in place of another.
    """
    if not isinstance(body, dict):
        raise RefusedRequestError("the body is not a JSON object")
    check_size(body.get("messages"), "messages", body)
    for name in ("functions", "function_call"):
        if body.get(name) not in (None, [], "none"):
            raise RefusedRequestError(
                f"{name}: is the older form of tools, which is not served; send tools"
            )
    messages = read_messages(body["messages"])
    replaced_settings = other_settings(body, sampling, HONORED)
    # Under a grammar vLLM samples a call that is forced, and no second one if that is forbidden.
    if body.get("tool_choice") not in (None, "auto", "none"):
        replaced_settings += ("tool_choice",)
    if body.get("parallel_tool_calls") is False:
        replaced_settings += ("parallel_tool_calls",)
    if replaced_settings and not replaces:
        raise other_sampling(replaced_settings[0], body[replaced_settings[0]])
    try:
        kept_keys = HONORED - {"stop", "messages", *replaced_settings}
        rest = {key: body[key] for key in body if key in kept_keys}
        request = vllm_protocol.ChatCompletionRequest.model_validate(
            {**rest, "messages": NO_HISTORY}
        )
    except Exception as error:
        raise describe_invalid(error) from None
    if request.model is not None and request.model != model:
        raise RefusedRequestError(
            f"model = {request.model[:200]!r} is not served here; this run's is {model!r}",
            404,
            "model_not_found",
        )
    if request.n not in (None, 1):
        raise RefusedRequestError(
            f"n = {request.n}: one request samples one completion; send {request.n} requests"
        )
    tools = tuple(body.get("tools") or ()) if body.get("tool_choice") != "none" else ()
    max_tokens, stop = turn_limits(body)
    options = request.stream_options
    return ChatRequest(
        messages=messages,
        tools=tools,
        num_characters=measure(messages).characters,
        digests=history_digests(messages, tools),
        max_tokens=max_tokens,
        stop=stop,
        is_streamed=bool(request.stream),
        wants_usage=bool(options is not None and options.include_usage),
        wants_logprobs=bool(request.logprobs),
        wants_token_ids=bool(request.return_token_ids),
        names_tokens_by_id=bool(request.return_tokens_as_token_ids),
        replaced_settings=replaced_settings,
        is_retry=is_retry,
    )


def other_settings(
    body: Mapping[str, Any], sampling: Sampling, honored: Set[str]
) -> tuple[str, ...]:
    """The settings of a request that would sample differently than the run."""
    run = {
        "temperature": (sampling.temperature,),
        "top_p": (sampling.top_p,),
        # vLLM turns top_k off with -1 or 0.
        "top_k": (sampling.top_k or -1, sampling.top_k),
    }
    differing_settings = []
    for name, value in body.items():
        if name in honored or name in IGNORED or value is None:
            continue
        allowed_values = run.get(name) or NEUTRAL.get(name, ())
        if not any(
            # In Python False == 0: a boolean must not pass for a number.
            (type(value) is not bool and value == allowed_value) or value is allowed_value
            for allowed_value in allowed_values
        ):
            differing_settings.append(name)
    return tuple(differing_settings)


def other_sampling(name: str, value: object) -> RefusedRequestError:
    """The refusal of a setting."""
    value_text = reprlib.repr(value)[:100]
    return RefusedRequestError(
        (
            f"{name} = {value_text}: the run's own sampling is trained on; leave it out, or set "
            "sampling: run"
        ),
        code="sampling_of_run",
    )


def describe_invalid(error: Exception) -> RefusedRequestError:
    """The refusal of a body that pydantic or a check of vLLM does not accept."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return RefusedRequestError(" ".join(str(error).split())[:300])
    first = error.errors(include_url=False)[0]
    field_path = ".".join(map(str, first["loc"]))
    return RefusedRequestError(f"{field_path[:200]}: {' '.join(str(first['msg']).split())[:300]}")


def check_size(messages: Any, name: str, body: Mapping[str, Any]) -> None:
    """Raises RefusedRequestError for a body that would take long to check.

    `messages`: its field `name`.
    """
    if not isinstance(messages, list) or not messages:
        raise RefusedRequestError(f"{name}: give a list of at least one message")
    tools = body.get("tools")
    contents = [message.get("content") for message in messages if isinstance(message, dict)]
    # Results of tools have parts of their own, namespaces have tools.
    num_parts = sum(_num_nested(content, "content") for content in contents)
    if max(len(messages), num_parts) > MAX_MESSAGES or _num_nested(tools, "tools") > MAX_TOOLS:
        raise RefusedRequestError(
            f"a request may have {MAX_MESSAGES} messages and {MAX_TOOLS} tools at most"
        )
    if measure(body).depth > MAX_DEPTH:
        raise RefusedRequestError(f"the body is nested more than {MAX_DEPTH} deep")
    max_tools_characters = 1 << 20
    if measure(tools).characters > max_tools_characters:
        raise RefusedRequestError(
            f"tools: a request may have {max_tools_characters} characters of them at most"
        )
    if isinstance(messages[-1], dict) and messages[-1].get("role") == "assistant":
        raise RefusedRequestError(
            "messages: the last one is the assistant's, and an answer is not continued"
        )


def _num_nested(items: Any, name: str) -> int:
    """The items of a list, and those of the list `name` of each."""
    if not isinstance(items, list):
        return 0
    lists = [item.get(name) for item in items if isinstance(item, dict)]
    return len(items) + sum(len(inner) for inner in lists if isinstance(inner, list))


def turn_limits(settings: Mapping[str, Any]) -> tuple[int | None, tuple[str, ...]]:
    """The most tokens that a request wants, and the texts that end its turn.

    Raises RefusedRequestError.
    """
    max_tokens = settings.get("max_completion_tokens")
    if max_tokens is None:
        max_tokens = settings.get("max_tokens")
    # By exact type: True is an int in Python.
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise RefusedRequestError(f"max_tokens = {max_tokens}: must be a number of at least 1")
    stops = settings.get("stop")
    if stops is None or isinstance(stops, str):
        stops = [] if stops is None else [stops]
    is_list = isinstance(stops, list) and all(isinstance(text, str) for text in stops)
    # Most stop texts that the OpenAI API takes.
    max_stops = 4
    max_stop_characters = 200
    if (
        not is_list
        or len(stops) > max_stops
        or not all(0 < len(text) <= max_stop_characters for text in stops)
    ):
        raise RefusedRequestError(
            f"stop: at most {max_stops} texts of 1 to {max_stop_characters} characters each"
        )
    return max_tokens, tuple(stops)
