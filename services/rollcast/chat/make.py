"""The renderer of a model: one of the package `renderers`, or the bridge over its own chat
template.
"""

from typing import Any

from rollcast.chat.base import ChatRefusedError, ChatRenderer
from rollcast.chat.bridge import TemplateBridge
from rollcast.chat.proof import check_extends
from rollcast.chat.recognition import recognise_renderer
from rollcast.chat.template import ChatTemplate, ChatTokenizer
from rollcast.chat.typed import package_renderer
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.tasks import PromptFormat

AUTO = "auto"


def make_renderer(
    model: Model,
    tokenizer: ChatTokenizer,
    prompt_format: PromptFormat | None = None,
    *,
    needs_tools: bool = True,
) -> ChatRenderer:
    """The renderer that `model.renderer` asks for. Takes about half a second; a bridge is proven
    before it is returned.

    needs_tools: False = for chats without tools, which other templates serve as well. Raises
    UserError if the model's format does not let turns extend each other, or the prompts are not its
    chats.
    """
    prompts = prompt_format or PromptFormat()
    _check(prompts)
    options: dict[str, Any] = (
        {} if prompts.enable_thinking is None else {"enable_thinking": prompts.enable_thinking}
    )
    name = model.renderer
    if name != AUTO:
        return package_renderer(name, tokenizer, options)
    if not tokenizer.chat_template:
        raise UserError(
            f"model.renderer = auto: the tokenizer of {model.path} has no chat template, which "
            "chats of several turns need; add one to its folder, or name the renderer of its family"
        )
    package_match = recognise_renderer(tokenizer)
    if package_match is not None:
        known_as, defaults = package_match
        return package_renderer(known_as, tokenizer, defaults | options)
    try:
        bridge = TemplateBridge(ChatTemplate(tokenizer, options))
        check_extends(bridge, needs_tools=needs_tools)
    except ChatRefusedError as error:
        raise UserError(
            f"model.renderer = auto: the chat template of {model.path} {error}; name the renderer "
            "of the model's family, or give its folder a template whose turns extend each other"
        ) from error
    return bridge


def _check(prompt_format: PromptFormat) -> None:
    if prompt_format.layout != "auto":
        raise UserError(
            f"tasks.prompt_format.layout = {prompt_format.layout}: chats of several turns are "
            "written by the model's chat template; set auto, or leave out tasks.environments"
        )
    if prompt_format.open_thinking:
        raise UserError(
            "tasks.prompt_format.open_thinking = true: chats of several turns begin as the model's "
            "chat template begins them; set false, or enable_thinking: true"
        )
