"""vLLM's classes of the APIs that it serves, and two of its modules, imported when first asked for:
the engine has imported vLLM by then.
"""

from importlib import import_module
from typing import Any

_OPENAI = "vllm.entrypoints.openai"
_PLACES = {
    "ChatCompletionRequest": f"{_OPENAI}.chat_completion.protocol",
    "ChatCompletionResponse": f"{_OPENAI}.chat_completion.protocol",
    # One part of a streamed completion
    "ChatCompletionStreamResponse": f"{_OPENAI}.chat_completion.protocol",
    # An answer in tokens
    "GenerateTokensResponse": "vllm.entrypoints.scale_out.token_in_token_out.protocol",
    "AnthropicMessagesRequest": "vllm.entrypoints.anthropic.protocol",
    "AnthropicCountTokensRequest": "vllm.entrypoints.anthropic.protocol",
    # Its methods convert between Anthropic's messages and chat completions; none needs an object.
    "AnthropicServingMessages": "vllm.entrypoints.anthropic.serving",
    "ResponsesRequest": f"{_OPENAI}.responses.protocol",
    "ResponsesResponse": f"{_OPENAI}.responses.protocol",
    "DeltaMessage": f"{_OPENAI}.responses.streaming_events",
    "FunctionCall": f"{_OPENAI}.responses.utils",
    # The engine's settings of sampling, which a response repeats
    "SamplingParams": "vllm",
}
_MODULES = {
    # Converts between responses and chat completions
    "responses_utils": f"{_OPENAI}.responses.utils",
    # Makes the events of a streamed response
    "responses_events": f"{_OPENAI}.responses.streaming_events",
}


def __getattr__(name: str) -> Any:
    """A class or a module of the tables."""
    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _PLACES:
        value = getattr(import_module(_PLACES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
