"""What a run file leaves out, as this machine, the model and the data suggest it: what `rollcast up` starts from.

Elsewhere the schema's defaults hold: in a cluster the chart gives addresses, and lengths and shares are the paper's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rollcast.config.datasets import RowsDataset
from rollcast.config.errors import UserError
from rollcast.config.recipe import Interruption, LengthControl, NoLengthControl
from rollcast.config.rules import RULES, broken_rules
from rollcast.config.run import RunConfig
from rollcast.config.sentences import overlap
from rollcast.config.tasks import PromptFormat
from rollcast.local.monitor import HOST as PROMETHEUS_HOST
from rollcast.local.ports import can_have
from rollcast.memory.context_length import config_of, known_length
from rollcast.tasks.prompts import PromptSplit, load

TEMPLATE_TOKENS = 128
"""Room for the text that a chat template puts around a prompt, beside a token for each of the prompt's bytes."""
THINK_TOKENS = 256
"""Room for the system message that layout `think` has by itself; each of its bytes may be a token."""
HELD_OUT = 5
"""One prompt in so many is held out where a data set is small."""
LEAST_INTERRUPTED = 2_048
"""Completion tokens below which no thinking is interrupted: phrase and answer would take much of them."""
MAX_TOKENIZER_BYTES = 64 << 20


def filled_in(config: RunConfig) -> RunConfig:
    """`config` with what its file does not set. What cannot be read stays as it is: the checks say why."""
    config = _on_this_machine(config)
    config = _changed(config, "model", max_length=_model_length(config))
    prompts = _prompts(config)
    config = _shares(config, prompts)
    config = _lengths(config, prompts)
    return _changed(config, "recipe", length_control=_length_control(config))


def _changed(config: RunConfig, group: str, **values: Any) -> RunConfig:
    """The group with those values that its file does not set; None = leave it."""
    settings = getattr(config, group)
    update = {name: value for name, value in values.items() if value is not None and not _given(settings, name)}
    return config.model_copy(update={group: settings.model_copy(update=update)}) if update else config


def _given(settings: Any, name: str) -> bool:
    return name in settings.model_fields_set


def _on_this_machine(config: RunConfig) -> RunConfig:
    """A Redis of its own, and ports that nobody has."""
    if not _given(config.redis, "host") and config.redis.socket is None:
        config = _changed(config, "redis", port=0)
    if config.tasks.grading.sandbox == "remote" and not _given(config.grader, "host"):
        config = _changed(config, "grader", port=0)
    page, prometheus = config.forecaster, config.local.prometheus_port
    if not can_have(config, "forecaster.http_port", page.bind, page.http_port):
        config = _changed(config, "forecaster", http_port=0)
    if not can_have(config, "local.prometheus_port", PROMETHEUS_HOST, prometheus):
        config = _changed(config, "local", prometheus_port=0)
    return _changed(config, "rpc", port=0)


def _model_length(config: RunConfig) -> int | None:
    """The model's own length where it is below the default."""
    length = known_length(config_of(config.model))
    return length if length is not None and length < config.model.max_length else None


def _read_json(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        if path.stat().st_size <= MAX_TOKENIZER_BYTES and isinstance(found := json.loads(path.read_bytes()), dict):
            return found
    return {}


def _prompts(config: RunConfig) -> PromptSplit | None:
    """Every prompt, where they decide anything: rows of a data set, or lengths that do not fit the model."""
    tasks, recipe = config.tasks, config.recipe
    if any(overlap(wrong.field, "tasks") for wrong in broken_rules(config, RULES)):
        return None
    shares = isinstance(tasks.dataset, RowsDataset) and not (
        _given(tasks.evaluation, "num_prompts") and _given(recipe, "prompts_per_step")
    )
    if not shares and (_fit(config) or _given(recipe, "max_prompt_tokens")):
        return None
    least = 1 if not _given(tasks.evaluation, "num_prompts") else tasks.evaluation.num_prompts
    evaluation = tasks.evaluation.model_copy(update={"num_prompts": least})
    with suppress(UserError):
        return load(tasks.model_copy(update={"evaluation": evaluation}))
    return None


def _shares(config: RunConfig, prompts: PromptSplit | None) -> RunConfig:
    """Of a small data set: how many prompts are held out, and how many a step takes."""
    if prompts is None or not isinstance(config.tasks.dataset, RowsDataset):
        return config
    total = len(prompts.train) + len(prompts.held_out)
    evaluation = config.tasks.evaluation
    if not _given(evaluation, "num_prompts"):
        held_out = min(evaluation.num_prompts, max(1, total // HELD_OUT))
        evaluation = evaluation.model_copy(update={"num_prompts": held_out})
        config = config.model_copy(update={"tasks": config.tasks.model_copy(update={"evaluation": evaluation})})
    left = max(1, total - evaluation.num_prompts)
    return _changed(config, "recipe", prompts_per_step=min(config.recipe.prompts_per_step, left))


def _fit(config: RunConfig) -> bool:
    return config.recipe.max_prompt_tokens + config.recipe.max_completion_tokens <= config.model.max_length


def _lengths(config: RunConfig, prompts: PromptSplit | None) -> RunConfig:
    """Of a model too short for the paper's: what the longest prompt needs, at most half; completions get the rest."""
    if _fit(config):
        return config
    recipe, room = config.recipe, config.model.max_length
    left = room - recipe.max_completion_tokens if _given(recipe, "max_completion_tokens") else room // 2
    longest = recipe.max_prompt_tokens
    if prompts is not None:
        texts = [
            prompt.text for part in (prompts.train, prompts.held_out, *prompts.downstream.values()) for prompt in part
        ]
        longest = min(longest, max(len(text.encode()) for text in texts) + tokens_around(config.tasks.prompt_format))
    config = _changed(config, "recipe", max_prompt_tokens=max(1, min(longest, left)))
    rest = max(1, room - config.recipe.max_prompt_tokens)
    return _changed(config, "recipe", max_completion_tokens=min(recipe.max_completion_tokens, rest))


def tokens_around(prompt_format: PromptFormat) -> int:
    """More tokens than the text around a prompt usually has."""
    if prompt_format.system is not None:
        return TEMPLATE_TOKENS + len(prompt_format.system.encode())
    return TEMPLATE_TOKENS + (THINK_TOKENS if prompt_format.layout == "think" else 0)


def _length_control(config: RunConfig) -> LengthControl | None:
    """Interruption in the paper's proportions where the tokenizer knows the marker, else none; None = as it is."""
    control, most = config.recipe.length_control, config.recipe.max_completion_tokens
    if not isinstance(control, Interruption):
        return None
    if not _knows(Path(config.model.path), control.end_of_thinking) or most < LEAST_INTERRUPTED:
        return NoLengthControl()
    low, high = control.position
    whole = type(config.recipe).model_fields["max_completion_tokens"].default
    if most >= whole:
        return None
    return Interruption(position=(low * most // whole, high * most // whole), answer_tokens=most // 7)


def _knows(model: Path, marker: str) -> bool:
    """Whether the tokenizer has the marker as a token; a model that is not here yet is trusted to."""
    if not model.is_dir():
        return True
    tokenizer = _read_json(model / "tokenizer.json")
    added = tokenizer.get("added_tokens")
    names = [token.get("content") for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return marker in names
