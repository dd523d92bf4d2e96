"""Values for settings that a run file leaves out, by this machine, the model and the data: the
start of `rollcast up`.

Elsewhere the schema's defaults hold: in a cluster the chart gives addresses, and lengths and shares
are the paper's.
"""

import json
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TypeVar

from rollcast.config.base import Settings
from rollcast.config.custom_function_digests import with_digests
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
from rollcast.memory.text_model import known_length, read_model_config
from rollcast.tasks.prompts import PromptSplit, load

HELD_OUT = 5
"""One prompt in this many is held out of a small data set."""
Group = TypeVar("Group", bound=Settings)


def filled_in(config: RunConfig) -> RunConfig:
    """`config` with what its file does not set.

    What cannot be read stays as it is: the checks say why.
    """
    config = _on_this_machine(config)
    model = config.model
    model_length = known_length(read_model_config(model))
    if model_length is not None:
        model = _fill_unset(model, max_length=min(model_length, model.max_length))
    tasks = config.tasks
    recipe = config.recipe
    broken = broken_rules(config.model_copy(update={"model": model}))
    is_data_wrong = any(overlap(wrong.field, "tasks") for wrong in broken)
    prompts = None if is_data_wrong else _prompts(tasks, recipe, model)
    if prompts is not None and isinstance(tasks.dataset, RowsDataset):
        total = len(prompts.train) + len(prompts.held_out)
        held_out = min(tasks.evaluation.num_prompts, max(1, total // HELD_OUT))
        tasks = tasks.model_copy(
            update={"evaluation": _fill_unset(tasks.evaluation, num_prompts=held_out)}
        )
        num_training_prompts = max(1, total - tasks.evaluation.num_prompts)
        recipe = _fill_unset(
            recipe, prompts_per_step=min(recipe.prompts_per_step, num_training_prompts)
        )
    if not _fit(recipe, model):
        recipe = _with_lengths(recipe, model.max_length, tasks.prompt_format, prompts)
    recipe = _fill_unset(recipe, length_control=_length_control(recipe, Path(model.path)))
    recipe = with_digests(recipe)
    return config.model_copy(update={"model": model, "tasks": tasks, "recipe": recipe})


def _fill_unset(settings: Group, **values: object) -> Group:
    """The group with those values that its file does not set; None = leave it."""
    left_out = values.keys() - settings.model_fields_set
    return settings.model_copy(
        update={name: values[name] for name in left_out if values[name] is not None}
    )


def _on_this_machine(config: RunConfig) -> RunConfig:
    """A Redis of its own, and free ports."""
    updates: dict[str, Settings] = {"rpc": _fill_unset(config.rpc, port=0)}
    if "host" not in config.redis.model_fields_set and config.redis.socket is None:
        updates["redis"] = _fill_unset(config.redis, port=0)
    if config.tasks.grading.sandbox == "remote" and "host" not in config.grader.model_fields_set:
        updates["grader"] = _fill_unset(config.grader, port=0)
    config = config.model_copy(update=updates)
    page = config.forecaster
    if not can_have(named_ports(config), "forecaster.http_port", page.bind, page.http_port):
        config = config.model_copy(update={"forecaster": _fill_unset(page, http_port=0)})
    local = config.local
    if not can_have(
        named_ports(config), "local.prometheus_port", PROMETHEUS_HOST, local.prometheus_port
    ):
        config = config.model_copy(update={"local": _fill_unset(local, prometheus_port=0)})
    return config


def _prompts(tasks: Tasks, recipe: Recipe, model: Model) -> PromptSplit | None:
    """Every prompt, if they decide anything: rows of a data set, or lengths that do not fit the
    model.
    """
    is_held_out_given = "num_prompts" in tasks.evaluation.model_fields_set
    is_share_given = is_held_out_given and "prompts_per_step" in recipe.model_fields_set
    is_length_given = _fit(recipe, model) or "max_prompt_tokens" in recipe.model_fields_set
    if is_length_given and (is_share_given or not isinstance(tasks.dataset, RowsDataset)):
        return None
    # Every prompt is wanted, and one at least must be held out.
    evaluation = (
        tasks.evaluation
        if is_held_out_given
        else tasks.evaluation.model_copy(update={"num_prompts": 1})
    )
    with suppress(UserError):
        return load(tasks.model_copy(update={"evaluation": evaluation}))
    return None


def _fit(recipe: Recipe, model: Model) -> bool:
    return recipe.max_prompt_tokens + recipe.max_completion_tokens <= model.max_length


def _with_lengths(
    recipe: Recipe, room: int, prompt_format: PromptFormat, prompts: PromptSplit | None
) -> Recipe:
    """Lengths for a model too short for the paper's: the longest prompt, at most half; completions
    get the rest.
    """
    is_given = "max_completion_tokens" in recipe.model_fields_set
    prompt_room = room - recipe.max_completion_tokens if is_given else room // 2
    longest = recipe.max_prompt_tokens
    if prompts is not None:
        every = chain(prompts.train, prompts.held_out, *prompts.downstream.values())
        longest = min(
            longest,
            max(len(prompt.text.encode()) for prompt in every) + tokens_around(prompt_format),
        )
    recipe = _fill_unset(recipe, max_prompt_tokens=max(1, min(longest, prompt_room)))
    rest = max(1, room - recipe.max_prompt_tokens)
    return _fill_unset(recipe, max_completion_tokens=min(recipe.max_completion_tokens, rest))


def tokens_around(prompt_format: PromptFormat) -> int:
    """More tokens than the text around a prompt usually has."""
    # Room for the text that a chat template puts around a prompt, beyond a token for each of the
    # prompt's bytes.
    template_tokens = 128
    if prompt_format.system is not None:
        return template_tokens + len(prompt_format.system.encode())
    # Room for the system message that layout `think` has by itself; each of its bytes may be a
    # token
    return template_tokens + (256 if prompt_format.layout == "think" else 0)


def _length_control(recipe: Recipe, model: Path) -> LengthControl | None:
    """Interruption in the paper's proportions if the tokenizer knows the marker, else none; None =
    as it is.
    """
    control = recipe.length_control
    limit = recipe.max_completion_tokens
    if not isinstance(control, Interruption):
        return None
    # Completion tokens below which no thinking is interrupted: phrase and answer would take much of
    # them
    if not _knows(model, control.end_of_thinking) or limit < 2_048:
        return NoLengthControl()
    low, high = control.position
    default_budget = type(recipe).model_fields["max_completion_tokens"].default
    if limit >= default_budget:
        return None
    return Interruption(
        position=(low * limit // default_budget, high * limit // default_budget),
        answer_tokens=limit // 7,
    )


def _knows(model: Path, marker: str) -> bool:
    """Whether the tokenizer has the marker as a token; a model
    that is not here yet is trusted to.
    """
    if not model.is_dir():
        return True
    file = model / "tokenizer.json"
    with suppress(
        OSError, ValueError, KeyError, TypeError
    ):  # not of the usual form: the marker is not known
        # Larger files are weights
        if file.stat().st_size <= (64 << 20):
            return any(
                token["content"] == marker
                for token in json.loads(file.read_bytes())["added_tokens"]
            )
    return False
