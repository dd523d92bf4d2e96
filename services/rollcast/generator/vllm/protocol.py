"""vLLM's classes of the APIs that it serves, loaded when first asked for: the engine has imported
vLLM by then.
"""

import functools
from typing import Any


@functools.cache
def chat_request() -> Any:
    """The class of a request for a chat completion."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest


@functools.cache
def chat_answer() -> Any:
    """The class of a whole chat completion."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponse

    return ChatCompletionResponse


@functools.cache
def chat_part() -> Any:
    """The class of one part of a streamed chat completion."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionStreamResponse

    return ChatCompletionStreamResponse


@functools.cache
def tokens_answer() -> Any:
    """The class of an answer in tokens."""
    from vllm.entrypoints.scale_out.token_in_token_out.protocol import GenerateTokensResponse

    return GenerateTokensResponse


@functools.cache
def anthropic_request() -> Any:
    """The class of a request of Anthropic's messages."""
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest

    return AnthropicMessagesRequest


@functools.cache
def anthropic_count() -> Any:
    """The class of a request to count the tokens of such a request."""
    from vllm.entrypoints.anthropic.protocol import AnthropicCountTokensRequest

    return AnthropicCountTokensRequest


@functools.cache
def anthropic_messages() -> Any:
    """The class whose methods convert between Anthropic's messages and chat completions; none needs
    an object of it.
    """
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages

    return AnthropicServingMessages


@functools.cache
def responses_request() -> Any:
    """The class of a request for a response of OpenAI's newer API."""
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    return ResponsesRequest


@functools.cache
def responses_answer() -> Any:
    """The class of a whole response."""
    from vllm.entrypoints.openai.responses.protocol import ResponsesResponse

    return ResponsesResponse


@functools.cache
def responses_utils() -> Any:
    """The module that converts between responses and chat completions."""
    from vllm.entrypoints.openai.responses import utils

    return utils


@functools.cache
def responses_events() -> Any:
    """The module that makes the events of a streamed response."""
    from vllm.entrypoints.openai.responses import streaming_events

    return streaming_events


@functools.cache
def delta_message() -> Any:
    """The class of a part of a message."""
    from vllm.entrypoints.openai.responses.streaming_events import DeltaMessage

    return DeltaMessage


@functools.cache
def function_call() -> Any:
    """The class of a call in a message."""
    from vllm.entrypoints.openai.responses.utils import FunctionCall

    return FunctionCall


@functools.cache
def sampling_params() -> Any:
    """The class of the engine's settings of sampling, which a response repeats."""
    from vllm import SamplingParams

    return SamplingParams
