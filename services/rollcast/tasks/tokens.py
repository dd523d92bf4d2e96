"""Prompts as token ids, with the text around them that the run file asks for.

A tokenizer that puts an end-of-text token behind every text puts no such token behind a prompt.

layout auto     the tokenizer's chat template: [system], the chat, the start of the assistant's turn
                a tokenizer without one: the bare text
layout bare     the bare text: the texts of a chat's messages, a blank line between two
layout think    the system message, then `User: ` and the prompt, then `Assistant:`
a chat with a system message of its own keeps that one
open_thinking   ... and `<think>` behind it, unless it stands there already
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.model import Model
from rollcast.config.tasks import PromptFormat
from rollcast.tasks.chats import Chat, Message, flat
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.template_watch import watch_template
from rollcast.tasks.thinking import THINK_END, THINK_START, opens_thinking
from rollcast.tasks.vocabulary import NUM_ROWS, check_token_ids, read_num_rows

THINK_SYSTEM = (
    "The assistant first thinks about the user's question and then answers it. It thinks between "
    f"{THINK_START} and {THINK_END}; the answer follows after {THINK_END}."
)


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    chat_template: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...
    def __call__(self, text: str, **options: Any) -> Any: ...
    def decode(self, token_ids: Any, **options: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    prompt: Prompt
    token_ids: tuple[int, ...]


def load_tokenizer(model: Model) -> Tokenizer:
    """The tokenizer of the model's folder or hub name. Raises UserError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model.path, trust_remote_code=model.trust_remote_code
        )
    except (
        Exception
    ) as error:  # a broken tokenizer.json is a bare Exception, other files are whatever they break
        raise refused_by_the_world(
            error,
            f"model.path = {model.path}: no tokenizer can be read there "
            f"({' '.join(str(error).split())[:200]}); give the folder of a Hugging Face model",
        ) from error
    _note_num_rows(tokenizer, model)
    return cast(Tokenizer, tokenizer)


def _note_num_rows(tokenizer: Any, model: Model) -> None:
    """Let `check_token_ids` refuse the ids beyond the model's rows, if the tokenizer has any."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            model.path, trust_remote_code=model.trust_remote_code
        ).to_dict()
        num_ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    except Exception:  # whatever is wrong with its files: whoever reads the model reports it
        return
    rows = read_num_rows(config)
    if rows is not None and rows < num_ids:
        setattr(tokenizer, NUM_ROWS, rows)


def end_token_ids(model: Model, tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens after which the engine ends a text by itself, or more than those: all that the model's
    files name.

    Empty = not known.
    """
    from transformers import AutoConfig, GenerationConfig

    values = [getattr(tokenizer, "eos_token_id", None)]
    try:
        config = AutoConfig.from_pretrained(model.path, trust_remote_code=model.trust_remote_code)
        values += [
            getattr(config, "eos_token_id", None),
            getattr(config.get_text_config(), "eos_token_id", None),
        ]
    except Exception:  # whatever a third party's files break
        return frozenset()
    with suppress(OSError):  # many models have no such file
        values.append(GenerationConfig.from_pretrained(model.path).eos_token_id)
    return frozenset(
        token
        for value in values
        for token in (value if isinstance(value, list) else [value])
        if token is not None
    )


def render(tokenizer: Tokenizer, messages: Chat, prompt_format: PromptFormat) -> tuple[str, bool]:
    """The whole text that the model reads, and whether it holds its special tokens already.

    Raises UserError if the chat template refuses the messages (some know no system message, and
    some want turns).
    """
    if prompt_format.layout == "think":
        rendered = _think(messages, prompt_format.system)
        complete = False
    elif prompt_format.layout == "auto" and tokenizer.chat_template:
        rendered = _chat(tokenizer, messages, prompt_format)
        complete = True
    else:
        rendered = flat(messages)
        complete = False
    if prompt_format.open_thinking and not opens_thinking(rendered):
        rendered += f"{THINK_START}\n" if rendered.endswith("\n") else f" {THINK_START}\n"
    return rendered, complete


def _think(messages: Chat, system: str | None) -> str:
    system_texts = [message.content for message in messages if message.role == "system"]
    parts = system_texts or [THINK_SYSTEM if system is None else system]
    names = {"user": "User: ", "assistant": "Assistant: "}
    parts += [
        names[message.role] + message.content for message in messages if message.role != "system"
    ]
    return "\n\n".join([*parts, "Assistant:"])


def _chat(tokenizer: Tokenizer, chat: Chat, prompt_format: PromptFormat) -> str:
    messages = [{"role": message.role, "content": message.content} for message in chat]
    if prompt_format.system is not None and chat[0].role != "system":
        messages.insert(0, {"role": "system", "content": prompt_format.system})
    options = (
        {}
        if prompt_format.enable_thinking is None
        else {"enable_thinking": prompt_format.enable_thinking}
    )
    try:
        with watch_template(getattr(tokenizer, "name_or_path", "") or "the model"):
            return str(
                tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False, **options
                )
            )
    except Exception as error:  # a template is a program and raises arbitrary exceptions
        raise UserError(
            "tasks.prompt_format: the chat template refuses the prompt "
            f"({' '.join(str(error).split())[:200]}); "
            "remove the system message, or set layout: think or bare"
        ) from error


def tokenize(
    tokenizer: Tokenizer, messages: Chat, prompt_format: PromptFormat | None = None
) -> tuple[int, ...]:
    """Token ids of one prompt. It is not finished: the tokenizer may put special tokens before it,
    none behind it.

    Raises UserError for a token that the model has no embedding for.
    """
    rendered, complete = render(tokenizer, messages, prompt_format or PromptFormat())
    bare = list(tokenizer(rendered, add_special_tokens=False)["input_ids"])
    token_ids = (
        bare if complete else _tokens_before(list(tokenizer(rendered)["input_ids"]), bare) + bare
    )
    check_token_ids(tokenizer, token_ids, rendered)
    return tuple(token_ids)


def _tokens_before(whole_ids: list[int], bare_ids: list[int]) -> list[int]:
    """What the tokenizer puts before a text: `whole_ids` is the text with all special tokens,
    `bare` without.
    """
    for start in range(len(whole_ids) - len(bare_ids) + 1):
        if whole_ids[start : start + len(bare_ids)] == bare_ids:
            return whole_ids[:start]
    return []


def tokenize_prompts(
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    max_prompt_tokens: int,
    prompt_format: PromptFormat | None = None,
) -> tuple[list[TokenizedPrompt], int]:
    """The prompts that fit, and how many were skipped because they are longer than
    `max_prompt_tokens` (or empty).
    """
    tokenized = [
        TokenizedPrompt(prompt, tokenize(tokenizer, prompt.messages, prompt_format))
        for prompt in prompts
    ]
    fitting_prompts = [item for item in tokenized if 0 < len(item.token_ids) <= max_prompt_tokens]
    return fitting_prompts, len(tokenized) - len(fitting_prompts)


def main() -> None:
    """Count the tokens of the shortest prompt of each group exactly as the trainer counts them, for
    the command line, which imports no Transformers.

    Standard input holds a JSON object with `model`, `prompt_format` and `groups` of chats; standard
    output gets a number for each group. Exit code 2 and a sentence on standard error: the tokenizer
    cannot be read, or its chat template refuses a prompt.
    """
    request = json.load(sys.stdin)
    prompt_format = PromptFormat.model_validate(request["prompt_format"])
    try:
        tokenizer = load_tokenizer(Model.model_validate(request["model"]))
        for chats in request["groups"]:
            messages = [tuple(Message(role, content) for role, content in chat) for chat in chats]
            print(min(len(tokenize(tokenizer, chat, prompt_format)) for chat in messages))
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
