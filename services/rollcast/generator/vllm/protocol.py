"""vLLM's classes of the OpenAI API, loaded when they are first asked for: the engine has imported vLLM by then."""

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
