"""What a run file leaves out, as this machine, the model and the data suggest it: what `rollcast up` starts from.

Elsewhere the schema's defaults hold: in a cluster the chart gives addresses, and lengths and shares are the paper's.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rollcast.config.base import Settings
from rollcast.config.datasets import RowsDataset
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Interruption, LengthControl, NoLengthControl, Recipe
from rollcast.config.rules import broken_rules
from rollcast.config.run import RunConfig
from rollcast.config.sentences import overlap
from rollcast.config.tasks import PromptFormat, Tasks
from rollcast.local.monitor import HOST as PROMETHEUS_HOST
from rollcast.local.ports import can_have, named_ports
from rollcast.memory.text_model import config_of, known_length
from rollcast.tasks.prompts import PromptSplit, load

TEMPLATE_TOKENS = 128
"""Room for the text that a chat template puts around a prompt, in addition to a token for each of the prompt's
bytes."""
THINK_TOKENS = 256
"""Room for the system message that layout `think` has by itself; each of its bytes may be a token."""
HELD_OUT = 5
"""One prompt in this many is held out of a small data set."""
LEAST_INTERRUPTED = 2_048
"""Completion tokens below which no thinking is interrupted: phrase and answer would take much of them."""
MAX_TOKENIZER_BYTES = 64 << 20
Group = TypeVar("Group", bound=Settings)


def filled_in(config: RunConfig) -> RunConfig:
    """`config` with what its file does not set. What cannot be read stays as it is: the checks say why."""
    config = _on_this_machine(config)
    model = _filled(config.model, max_length=_model_length(config.model))
    tasks = config.tasks
    recipe = config.recipe
    broken = broken_rules(config.model_copy(update={"model": model}))
    is_data_wrong = any(overlap(wrong.field, "tasks") for wrong in broken)
    prompts = None if is_data_wrong else _prompts(tasks, recipe, model)
    if prompts is not None and isinstance(tasks.dataset, RowsDataset):
        total = len(prompts.train) + len(prompts.held_out)
        tasks = _with_held_out_share(tasks, total)
        left = max(1, total - tasks.evaluation.num_prompts)
        recipe = _filled(recipe, prompts_per_step=min(recipe.prompts_per_step, left))
    if not _fit(recipe, model):
        recipe = _with_lengths(recipe, model.max_length, tasks.prompt_format, prompts)
    recipe = _filled(recipe, length_control=_length_control(recipe, Path(model.path)))
    return config.model_copy(update={"model": model, "tasks": tasks, "recipe": recipe})


def _filled(settings: Group, **values: Any) -> Group:
    """The group with those values that its file does not set; None = leave it."""
    update = {name: value for name, value in values.items() if value is not None and not _given(settings, name)}
    return settings.model_copy(update=update)


def _given(settings: Settings, name: str) -> bool:
    return name in settings.model_fields_set


def _on_this_machine(config: RunConfig) -> RunConfig:
    """A Redis of its own, and free ports."""
    if not _given(config.redis, "host") and config.redis.socket is None:
        config = config.model_copy(update={"redis": _filled(config.redis, port=0)})
    if config.tasks.grading.sandbox == "remote" and not _given(config.grader, "host"):
        config = config.model_copy(update={"grader": _filled(config.grader, port=0)})
    page = config.forecaster
    if not can_have(named_ports(config), "forecaster.http_port", page.bind, page.http_port):
        config = config.model_copy(update={"forecaster": _filled(page, http_port=0)})
    local = config.local
    if not can_have(named_ports(config), "local.prometheus_port", PROMETHEUS_HOST, local.prometheus_port):
        config = config.model_copy(update={"local": _filled(local, prometheus_port=0)})
    return config.model_copy(update={"rpc": _filled(config.rpc, port=0)})


def _model_length(model: Model) -> int | None:
    """The model's own length if it is below the default."""
    length = known_length(config_of(model))
    return length if length is not None and length < model.max_length else None


def _read_json(path: Path) -> Mapping[str, Any]:
    with suppress(OSError, ValueError):
        if path.stat().st_size <= MAX_TOKENIZER_BYTES and isinstance(found := json.loads(path.read_bytes()), dict):
            return found
    return {}


def _prompts(tasks: Tasks, recipe: Recipe, model: Model) -> PromptSplit | None:
    """Every prompt, if they decide anything: rows of a data set, or lengths that do not fit the model."""
    shares = isinstance(tasks.dataset, RowsDataset) and not (
        _given(tasks.evaluation, "num_prompts") and _given(recipe, "prompts_per_step")
    )
    if not shares and (_fit(recipe, model) or _given(recipe, "max_prompt_tokens")):
        return None
    least = 1 if not _given(tasks.evaluation, "num_prompts") else tasks.evaluation.num_prompts
    evaluation = tasks.evaluation.model_copy(update={"num_prompts": least})
    with suppress(UserError):
        return load(tasks.model_copy(update={"evaluation": evaluation}))
    return None


def _with_held_out_share(tasks: Tasks, total: int) -> Tasks:
    """The number of prompts held out of a small data set with `total` prompts."""
    evaluation = tasks.evaluation
    held_out = min(evaluation.num_prompts, max(1, total // HELD_OUT))
    return tasks.model_copy(update={"evaluation": _filled(evaluation, num_prompts=held_out)})


def _fit(recipe: Recipe, model: Model) -> bool:
    return recipe.max_prompt_tokens + recipe.max_completion_tokens <= model.max_length


def _with_lengths(recipe: Recipe, room: int, prompt_format: PromptFormat, prompts: PromptSplit | None) -> Recipe:
    """Lengths for a model too short for the paper's: the longest prompt, at most half; completions get the rest."""
    left = room - recipe.max_completion_tokens if _given(recipe, "max_completion_tokens") else room // 2
    longest = recipe.max_prompt_tokens
    if prompts is not None:
        texts = [
            prompt.text for part in (prompts.train, prompts.held_out, *prompts.downstream.values()) for prompt in part
        ]
        longest = min(longest, max(len(text.encode()) for text in texts) + tokens_around(prompt_format))
    recipe = _filled(recipe, max_prompt_tokens=max(1, min(longest, left)))
    rest = max(1, room - recipe.max_prompt_tokens)
    return _filled(recipe, max_completion_tokens=min(recipe.max_completion_tokens, rest))


def tokens_around(prompt_format: PromptFormat) -> int:
    """More tokens than the text around a prompt usually has."""
    if prompt_format.system is not None:
        return TEMPLATE_TOKENS + len(prompt_format.system.encode())
    return TEMPLATE_TOKENS + (THINK_TOKENS if prompt_format.layout == "think" else 0)


def _length_control(recipe: Recipe, model: Path) -> LengthControl | None:
    """Interruption in the paper's proportions if the tokenizer knows the marker, else none; None = as it is."""
    control = recipe.length_control
    most = recipe.max_completion_tokens
    if not isinstance(control, Interruption):
        return None
    if not _knows(model, control.end_of_thinking) or most < LEAST_INTERRUPTED:
        return NoLengthControl()
    low, high = control.position
    whole = type(recipe).model_fields["max_completion_tokens"].default
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
