"""A renderer of the package `renderers`, which knows one model's format, as a ChatRenderer.

The package bridges and parses. Its results are checked, because its input was written by a model:
the bridge must keep every token, and a parser that fails has found a call that cannot be read.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from rollcast.chat.base import AssistantTurn, ChatMessage, ToolCall, ToolSchema
from rollcast.chat.calls import Toolbox, bounded_calls, unreadable
from rollcast.chat.reasoning import decode_tokens
from rollcast.chat.template import ChatTokenizer, as_templates_take_it, make_refused_error
from rollcast.config.errors import UserError
from rollcast.tasks.thinking import THINK_END

UNREADABLE = {
    "invalid_json": "it is not valid JSON",
    "unclosed_block": "its end is missing",
    "missing_name": "it has no name",
    "malformed_structure": "it does not have the form of a call",
}
"""The package's statuses, in words for the model."""
COSTLY_MARKS = (
    ("<parameter", "</parameter>"),
    ("<function", "</function>"),
    ("<invoke", "</invoke>"),
)
"""The package's patterns take time in the square of the length for each of these that has no
end."""


class PackageRenderer:
    """Implements ChatRenderer."""

    def __init__(
        self, renderer: Any, tokenizer: ChatTokenizer, retaining_renderer: Any | None
    ) -> None:
        """lasting: the same renderer with the thinking kept, for sequences that hold none.

        None = not known.
        """
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._retaining_renderer = retaining_renderer
        think_end = tokenizer.convert_tokens_to_ids(THINK_END)
        is_token = isinstance(think_end, int) and think_end != getattr(
            tokenizer, "unk_token_id", None
        )
        self._think_end = think_end if is_token else None

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        eos = self._tokenizer.eos_token_id
        renderer_stop_ids = dict.fromkeys(self._renderer.get_stop_token_ids())
        return tuple(renderer_stop_ids if eos is None else renderer_stop_ids | {eos: None})

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        """Tokens up to the beginning of the assistant's turn. Raises ChatRefusedError."""
        template_messages = [as_templates_take_it(message) for message in messages]
        try:
            return list(
                self._renderer.render_ids(
                    template_messages, tools=_tools(tools), add_generation_prompt=True
                )
            )
        except Exception as error:  # what a format cannot write raises whatever it breaks
            raise make_refused_error(error) from error

    def parse(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], tools: Sequence[ToolSchema]
    ) -> AssistantTurn:
        """Read one turn of the assistant."""
        is_ended = bool(token_ids) and token_ids[-1] in self.stop_token_ids
        text = decode_tokens(self._tokenizer, token_ids[:-1] if is_ended else token_ids)
        # A parser that searches for the end of each open mark takes quadratic time
        if any(text.count(begin) > text.count(end) + 8 for begin, end in COSTLY_MARKS):
            return AssistantTurn("", calls=(unreadable(text, "its marks have no end"),))
        try:
            parsed = self._renderer.parse_response(
                list(token_ids), tools=_tools(tools), prompt_ids=list(prompt_ids)
            )
        # whatever the model wrote: nested beyond Python's limit, numbers of 10,000 digits
        except Exception as error:
            return AssistantTurn(
                "", calls=(unreadable(text, f"it is not valid JSON ({type(error).__name__})"),)
            )
        toolbox = Toolbox(tools)
        calls = [_call(call, toolbox) for call in parsed.tool_calls]
        content = str(parsed.content or "")
        bare = toolbox.bare_call(content) if not calls else None
        if bare:
            return AssistantTurn("", str(parsed.reasoning_content or ""), (bare,))
        return AssistantTurn(content, str(parsed.reasoning_content or ""), bounded_calls(calls))

    def next_turn(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        """The tokens between this turn and the next; None = the format strips thinking of this
        sequence.
        """
        sequence_ids = [*prompt_ids, *token_ids]
        template_messages = [as_templates_take_it(message) for message in messages]
        renderers = [self._renderer]
        # The package splits at every turn of the user, even if no thinking would be stripped.
        if (
            self._retaining_renderer is not None
            and self._think_end is not None
            and self._think_end not in sequence_ids
        ):
            renderers.append(self._retaining_renderer)
        for renderer in renderers:
            bridged = None
            # Messages that the format cannot write raise; `prompt` then gives the reason.
            with suppress(Exception):
                bridged = renderer.bridge_to_next_turn(
                    list(prompt_ids), list(token_ids), template_messages, tools=_tools(tools)
                )
            if bridged is None:
                continue
            bridged_ids = list(bridged.token_ids)
            if bridged_ids[: len(sequence_ids)] == sequence_ids:
                return bridged_ids[len(sequence_ids) :]
        return None


def package_names() -> tuple[str, ...]:
    """The renderers that `model.renderer` may name."""
    from renderers import base

    base._populate_registry()
    return tuple(name for name in base.RENDERER_REGISTRY if name != "default")


def package_renderer(
    name: str, tokenizer: ChatTokenizer, options: dict[str, Any]
) -> PackageRenderer:
    """The renderer of this name.

    options: of the chat template, such as `enable_thinking`. Raises UserError if the renderer does
    not take them, or if the tokenizer has not its special tokens.
    """
    try:
        renderer = made_by_package(name, tokenizer, options)
    except Exception as error:  # the package asserts that the tokenizer has its tokens
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"model.renderer = {name}: does not serve this model ({reason}); set auto, or the "
            "renderer of its family"
        ) from error
    return PackageRenderer(renderer, tokenizer, _with_thinking_retained(renderer, tokenizer))


def made_by_package(name: str, tokenizer: ChatTokenizer, options: dict[str, Any]) -> Any:
    """The package's own renderer. Raises whatever it asserts of tokenizer and options."""
    from renderers import config_from_name, create_renderer, merge_chat_template_kwargs

    return create_renderer(tokenizer, merge_chat_template_kwargs(config_from_name(name), options))


def _with_thinking_retained(renderer: Any, tokenizer: ChatTokenizer) -> Any | None:
    """A renderer of the same settings that keeps the thinking; None = the format cannot keep it."""
    from renderers import create_renderer

    try:
        return create_renderer(
            tokenizer, renderer.config.model_copy(update={"thinking_retention": "all"})
        )
    except Exception:  # its settings contradict each other
        return None


def _tools(tools: Sequence[ToolSchema]) -> list[dict[str, Any]] | None:
    return [dict(tool) for tool in tools] or None


def _call(call: Any, toolbox: Toolbox) -> ToolCall:
    raw = str(call.raw)
    if call.name and not isinstance(call.arguments, str):
        return toolbox.call(call.name, call.arguments if call.arguments is not None else {}, raw)
    return unreadable(raw, UNREADABLE.get(str(call.status), "its arguments are not a JSON object"))
