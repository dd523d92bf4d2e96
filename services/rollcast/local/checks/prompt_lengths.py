"""Whether prompts fit `recipe.max_prompt_tokens`, and the model has an embedding for each of their
tokens, before a trainer is started that ends there.
"""

import json
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.tasks import PromptFormat
from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.local.left_out import tokens_around
from rollcast.local.own_program import run_module
from rollcast.memory.model_file import read_here
from rollcast.tasks.chats import flat
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.vocabulary import read_num_rows, without_row

SETTINGS = ("tasks",)

SPECIAL_TOKENS = 4
"""Room for special tokens around a bare text."""
MAX_LOOK_SECONDS = 5.0
"""How long prompts of one part are counted. A vocabulary takes about a megabyte a second."""
MAX_EXACT_PROMPTS = 16
"""The shortest ones are counted with their template if the answer depends on it."""


@dataclass(frozen=True, slots=True)
class PromptPart:
    """Prompts that the trainer keeps together: without a single usable one it does not start."""

    name: str
    total: int
    counted: list[tuple[int, Prompt]]
    """Tokens of the bare texts, fewest first; those of all prompts unless the time was over, or
    enough fit."""

    @property
    def shortest(self) -> int:
        return self.counted[0][0]

    @property
    def is_whole(self) -> bool:
        return len(self.counted) == self.total


def check_embedding_rows(path: str, split: PromptSplit, tokenizer: TokenizerFile) -> None:
    """Raises UserError if a prompt holds an added token without one. `path`: model.path.

    The trainer checks the ids themselves, those of the chat template included.
    """
    try:
        rows = read_num_rows(read_here(path) or {})
    except UserError:  # the check of the model's files reports it
        return
    beyond = {} if rows is None else tokenizer.added_from(rows)
    if rows is None or not beyond:
        return
    for prompt in chain(split.train, split.held_out, *split.downstream.values()):
        if (token := next((token for token in beyond if token in prompt.text), None)) is not None:
            raise without_row(path, token, beyond[token], rows, prompt.text)


def check_lengths(
    recipe: Recipe,
    model: Model,
    prompt_format: PromptFormat,
    split: PromptSplit,
    tokenizer: TokenizerFile,
) -> list[str]:
    """Cautions.

    Raises UserError if the run would start without a training, held-out or downstream prompt.
    """
    limit = recipe.max_prompt_tokens
    named = [("training", split.train), ("held-out", split.held_out)]
    named += [(repr(name), prompts) for name, prompts in split.downstream.items()]
    parts = [
        PromptPart(name, len(part_prompts), _count_tokens(part_prompts, tokenizer, limit))
        for name, part_prompts in named
        if part_prompts
    ]
    has_text = prompt_format.layout == "think" or (
        prompt_format.layout == "auto" and tokenizer.has_chat_template
    )
    room = tokens_around(prompt_format) if has_text else SPECIAL_TOKENS
    at_the_edge = [split for split in parts if split.shortest <= limit < split.shortest + room]
    cautions = [
        f"recipe.max_prompt_tokens = {limit}: none of the {len(split.counted)} shortest of "
        f"{split.total} {split.name} "
        f"prompts fits (the others were not looked at within {MAX_LOOK_SECONDS:g} s); raise it"
        for split in parts
        if split.shortest > limit and not split.is_whole
    ]
    refused = [
        (split, split.shortest) for split in parts if split.shortest > limit and split.is_whole
    ]
    if at_the_edge and not refused:
        shortest = [
            [prompt for _, prompt in split.counted[:MAX_EXACT_PROMPTS]] for split in at_the_edge
        ]
        exact = _exact(model, prompt_format, shortest)
        if exact is None:
            cautions.append(
                f"recipe.max_prompt_tokens = {limit}: whether the shortest prompts fit was not "
                "found out here"
            )
        else:
            refused = [
                (split, tokens)
                for split, tokens in zip(at_the_edge, exact, strict=True)
                if tokens > limit
            ]
    if refused:
        raise UserError(
            _too_long(recipe, model.max_length, *max(refused, key=lambda item: item[1]))
        )
    return cautions


def _too_long(recipe: Recipe, room: int, prompt_part: PromptPart, shortest: int) -> str:
    """The sentence, with what can be changed, if anything makes them fit.

    `room`: model.max_length.
    """
    prompts_text = (
        f"each of the {prompt_part.total} {prompt_part.name} prompts"
        if prompt_part.total > 1
        else f"the one {prompt_part.name} prompt"
    )
    remedy = f"set at least {shortest}"
    if shortest >= room:
        remedy = (
            f"no more than model.max_length = {room} fit with a completion: shorten the prompts, "
            "or use another model"
        )
    elif shortest + recipe.max_completion_tokens > room:
        less = f"recipe.max_completion_tokens at most {room - shortest}"
        remedy = f"{remedy} (and {less}, since both must fit model.max_length = {room})"
    return (
        f"recipe.max_prompt_tokens = {recipe.max_prompt_tokens}: {prompts_text} is longer, the "
        f"shortest has {shortest} tokens; {remedy}"
    )


def _count_tokens(
    prompts: Sequence[Prompt], tokenizer: TokenizerFile, limit: int
) -> list[tuple[int, Prompt]]:
    """Tokens of the bare texts, the shortest texts looked at first, until enough are known or the
    time is over.
    """
    counted: list[tuple[int, Prompt]] = []
    deadline = time.monotonic() + MAX_LOOK_SECONDS
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.text)):
        counted.append((tokenizer.count(flat(prompt.messages)), prompt))
        fits = counted[-1][0] <= limit
        if time.monotonic() > deadline or (fits and len(counted) >= MAX_EXACT_PROMPTS):
            break
    return sorted(counted, key=lambda item: item[0])


def _exact(
    model: Model, prompt_format: PromptFormat, groups: Sequence[Sequence[Prompt]]
) -> list[int] | None:
    """Tokens of the shortest prompt of each group, as the trainer counts them; None if that cannot
    be found out here.

    Raises UserError.
    """
    chats = [
        [[(message.role, message.content) for message in prompt.messages] for prompt in group]
        for group in groups
    ]
    request = {
        "model": model.model_dump(),
        "prompt_format": prompt_format.model_dump(),
        "groups": chats,
    }
    try:
        # Transformers is imported and a tokenizer read: some seconds on a free machine, a minute on
        # a busy one
        done = run_module("rollcast.tasks.tokens", json.dumps(request), 300.0)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == UserError.exit_code and done.stderr.strip():
        raise UserError(done.stderr.strip().splitlines()[-1])
    return [int(number) for number in done.stdout.split()] if done.returncode == 0 else None


def check(start: Start) -> Iterable[Finding]:
    config = start.config
    if start.tokenizer is None:
        return ()
    check_embedding_rows(config.model.path, start.split, start.tokenizer)
    return warnings(
        check_lengths(
            config.recipe, config.model, config.tasks.prompt_format, start.split, start.tokenizer
        )
    )
