"""Whether prompts fit `recipe.max_prompt_tokens`, before a trainer is started to find that none does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.tasks.chats import flat
from rollcast.tasks.prompts import Prompt, PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile

TEMPLATE_TOKENS = 128
"""Room for the text around a prompt: a chat template, a system message of the usual length."""
THINK_TOKENS = 256
"""Room for the text of layout `think`, which has a system message of its own; each byte may be a token."""
SPECIAL_TOKENS = 4
"""Room for special tokens around a bare text."""
MAX_LOOK_SECONDS = 5.0
"""How long prompts of one part are counted. A vocabulary takes about a megabyte a second."""
MAX_EXACT_PROMPTS = 16
"""The shortest ones are counted with their template if the answer depends on it."""
EXACT_SECONDS = 120.0
"""Transformers is imported and a tokenizer read: some seconds on a free machine."""


def check_lengths(config: RunConfig, split: PromptSplit, tokenizer: TokenizerFile) -> list[str]:
    """Cautions. Raises UserError if the run would start without a training, held-out or downstream prompt."""
    parts = [("training", split.train), ("held-out", split.held_out)]
    parts += [(repr(name), prompts) for name, prompts in split.downstream.items()]
    return [line for name, prompts in parts if prompts for line in _check_part(config, name, prompts, tokenizer)]


def _check_part(config: RunConfig, name: str, prompts: Sequence[Prompt], tokenizer: TokenizerFile) -> list[str]:
    limit = config.recipe.max_prompt_tokens
    counted = _counted(prompts, tokenizer, limit)
    shortest, total = min(counts := [tokens for tokens, _ in counted]), len(prompts)
    if shortest <= limit:
        if shortest + _room_around(config, tokenizer) <= limit:
            return []
        closest = sorted(zip(counts, (prompt for _, prompt in counted), strict=True), key=lambda item: item[0])
        exact = _exact(config, [prompt for _, prompt in closest[:MAX_EXACT_PROMPTS]])
        if exact is None or exact <= limit:
            return []
        shortest = exact
    sentence = f"recipe.max_prompt_tokens = {limit}: "
    if len(counted) < total:
        looked_at = f"none of the {len(counted)} shortest of {total} {name} prompts fits"
        return [f"{sentence}{looked_at} (all could not be looked at in {MAX_LOOK_SECONDS:g} s); raise it"]
    each = f"each of the {total} {name} prompts is longer" if total > 1 else f"the one {name} prompt is longer"
    raise UserError(f"{sentence}{each}, the shortest has {shortest} tokens; {_remedy(config, shortest)}")


def _counted(prompts: Sequence[Prompt], tokenizer: TokenizerFile, limit: int) -> list[tuple[int, Prompt]]:
    """Tokens of the bare texts, the shortest first, until enough are known or the time is over."""
    counted: list[tuple[int, Prompt]] = []
    until = time.monotonic() + MAX_LOOK_SECONDS
    for prompt in sorted(prompts, key=lambda prompt: len(prompt.text)):
        counted.append((tokenizer.count(flat(prompt.messages)), prompt))
        fits = counted[-1][0] <= limit
        if time.monotonic() > until or (fits and len(counted) >= MAX_EXACT_PROMPTS):
            break
    return counted


def _room_around(config: RunConfig, tokenizer: TokenizerFile) -> int:
    """More tokens than the text around a prompt usually has."""
    layout = config.tasks.prompt_format
    system = 0 if layout.system is None else tokenizer.count(layout.system)
    if layout.layout == "think":
        return TEMPLATE_TOKENS + (system or THINK_TOKENS)
    return TEMPLATE_TOKENS + system if layout.layout == "auto" and tokenizer.has_chat_template else SPECIAL_TOKENS


def _exact(config: RunConfig, prompts: Sequence[Prompt]) -> int | None:
    """Tokens of the shortest, as the trainer counts them; None if that cannot be found out here. Raises UserError."""
    asked = {
        "model": config.model.model_dump(),
        "prompt_format": config.tasks.prompt_format.model_dump(),
        "chats": [[(message.role, message.content) for message in prompt.messages] for prompt in prompts],
    }
    command = [sys.executable, "-m", "rollcast.tasks.shortest_prompt"]
    try:
        done = subprocess.run(  # noqa: S603  # our own program
            command, input=json.dumps(asked), capture_output=True, text=True, timeout=EXACT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == UserError.exit_code and done.stderr.strip():
        raise UserError(done.stderr.strip().splitlines()[-1])
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None


def _remedy(config: RunConfig, shortest: int) -> str:
    """What can be changed, if anything makes them fit."""
    room = config.model.max_length
    if shortest >= room:
        return (
            f"no more than model.max_length = {room} fit with a completion: shorten the prompts, or use another model"
        )
    if shortest + config.recipe.max_completion_tokens <= room:
        return f"set at least {shortest}"
    return (
        f"set at least {shortest} (and recipe.max_completion_tokens at most {room - shortest}, since both must fit "
        f"model.max_length = {room})"
    )
