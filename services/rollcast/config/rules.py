"""The rules across settings, each once.

A rule looks at a whole run file and names the setting to fix, and the one that it contradicts.
`rollcast config check`, every process that reads a run file, and the chart's check before an
install apply this list and no other.
"""

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollcast.config.autoscaler import Autoscaler
from rollcast.config.base import Settings
from rollcast.config.connections import Redis, Weights
from rollcast.config.curve_sources import CurveFile, CurveQueries
from rollcast.config.datasets import (
    CountdownDataset,
    Dataset,
    HuggingfaceDataset,
    Mixture,
    RowsDataset,
)
from rollcast.config.draft_rules import drafts_fit
from rollcast.config.engine_arguments import EngineArguments
from rollcast.config.environment_rules import environments_are_one
from rollcast.config.episode_rules import episodes_fit
from rollcast.config.loggers import Log
from rollcast.config.model import Model
from rollcast.config.recipe import DifficultyAllocation, Recipe
from rollcast.config.recipe_rules import recipe_is_one
from rollcast.config.run_end import Budget, StopWhen
from rollcast.config.schema import RunConfig
from rollcast.config.sentences import Contradiction, Wrong, with_prefix, wrong_value
from rollcast.config.services import Forecaster, Generator, Grader
from rollcast.config.tasks import Grading, PromptFormat, Tasks


def broken_rules(config: RunConfig, *, to_start: bool = False) -> Iterator[Wrong]:
    """Mistakes in settings that are right one by one.

    `to_start`: a run is started from them, so it must end.
    """
    for field, sentence, *related_fields in _contradictions(config):
        yield wrong_value(field, _value(config, field), sentence, *related_fields)
    yield from _data_sets_have_a_place(config.tasks)
    yield from _one_logger_of_a_kind(config.log)
    if to_start:
        yield from _the_run_ends(config.budget, config.stop_when)
        yield from _loggers_are_installed(config.log)


def _contradictions(config: RunConfig) -> Iterator[Contradiction]:
    yield from _model_fits(config.model, config.recipe, config.generator.engine)
    yield from drafts_fit(config.model, config.recipe, config.generator.engine.speculative_config)
    yield from _groups_fit_a_generator(config.generator, config.recipe, config.tasks)
    yield from with_prefix("recipe", recipe_is_one(config.recipe))
    yield from with_prefix("tasks.prompt_format", _prompt_format_is_one(config.tasks.prompt_format))
    yield from _names_are_given_once(config.tasks, config.forecaster)
    yield from environments_are_one(config.tasks)
    for field, dataset in _datasets(config.tasks):
        yield from with_prefix(field, _data_set_is_one(dataset))
    yield from episodes_fit(config.tasks, config.recipe, list(_datasets(config.tasks)))
    yield from with_prefix("weights", _the_store_fits(config.weights))
    yield from _services_fit(config.tasks.grading, config.grader, config.redis)
    yield from with_prefix("autoscaler", _autoscaler_knows_its_fleet(config.autoscaler))


def _value(settings: Settings, field: str) -> object:
    """The value of a setting as a run file contains it."""
    value: Any = settings
    for name in field.split("."):
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _model_fits(model: Model, recipe: Recipe, engine: EngineArguments) -> Iterator[Contradiction]:
    need = recipe.max_prompt_tokens + recipe.max_completion_tokens
    if need > model.max_length:
        yield (
            "model.max_length",
            f"recipe.max_prompt_tokens {recipe.max_prompt_tokens} + recipe.max_completion_tokens "
            f"{recipe.max_completion_tokens} = {need} exceed it; lower one of these, or raise "
            "model.max_length as far as the model's context allows",
            "recipe.max_prompt_tokens",
            "recipe.max_completion_tokens",
        )
    if model.from_step is not None and model.from_run is None:
        yield (
            "model.from_step",
            "it names a checkpoint of model.from_run, which is not set; set it",
            "model.from_run",
        )
    if model.from_run is not None and model.spent_device_hours is not None:
        yield (
            "model.spent_device_hours",
            "the checkpoint of model.from_run contains the spent device-hours; remove one of "
            "the two",
            "model.from_run",
        )
    if engine.quantization is not None and model.dtype != "bfloat16":
        yield (
            "generator.engine.quantization",
            f"it quantises bfloat16 weights, and model.dtype is {model.dtype}; set that to "
            "bfloat16 or remove quantization",
            "model.dtype",
        )
    if engine.quantization is not None and model.lora is not None:
        yield (
            "generator.engine.quantization",
            "adapters of a base in 8 bits were never shown; remove it, or train every weight "
            "without model.lora",
            "model.lora",
        )


def _groups_fit_a_generator(
    generator: Generator, recipe: Recipe, tasks: Tasks
) -> Iterator[Contradiction]:
    groups = {
        "recipe.rollouts_per_prompt": recipe.rollouts_per_prompt,
        "tasks.evaluation.rollouts_per_prompt": tasks.evaluation.rollouts_per_prompt,
        **{
            f"tasks.downstream.{i}.rollouts_per_prompt": d.rollouts_per_prompt
            for i, d in enumerate(tasks.downstream)
        },
    }
    if isinstance(recipe.rollout_allocation, DifficultyAllocation):
        groups["recipe.rollout_allocation.most"] = recipe.rollout_allocation.most
    for field, rollouts in groups.items():
        if rollouts > generator.most_slots:
            yield (
                field,
                "the rollouts of one prompt stay together, and a generator has generator.slots "
                f"{generator.most_slots}; lower {field} or raise generator.slots",
                "generator.slots",
            )


def _the_store_fits(weights: Weights) -> Iterator[Contradiction]:
    if weights.uses_store and weights.stage == "device":
        yield (
            "stage",
            "versions that are pulled from a store are staged in host memory; set it to auto or "
            "host",
            "transport",
        )
    if weights.store.location is not None and not weights.uses_store:
        yield (
            "store.location",
            f"weights.transport {weights.transport} uses no store; remove it, or set transport to "
            "store or auto",
            "transport",
        )


def _prompt_format_is_one(prompt_format: PromptFormat) -> Iterator[Contradiction]:
    is_dressed = prompt_format.system is not None or prompt_format.enable_thinking is not None
    if prompt_format.layout == "bare" and is_dressed:
        yield (
            "layout",
            "takes neither system nor enable_thinking; remove them or choose another layout",
            "system",
            "enable_thinking",
        )
    if prompt_format.open_thinking and prompt_format.enable_thinking is False:
        yield (
            "open_thinking",
            "contradicts enable_thinking: false; remove one of the two",
            "enable_thinking",
        )


def _names_are_given_once(tasks: Tasks, forecaster: Forecaster) -> Iterator[Contradiction]:
    source = forecaster.source
    curves: tuple[CurveFile | CurveQueries, ...] = () if source.kind == "scrape" else source.curves
    yield from _given_once([(f"{field}.name", dataset.name) for field, dataset in _datasets(tasks)])
    for pattern, names in (
        ("tasks.verifiers.{}.name", [verifier.name for verifier in tasks.verifiers]),
        ("tasks.environments.{}.name", [environment.name for environment in tasks.environments]),
        ("forecaster.source.curves.{}.run", [curve.run for curve in curves]),
    ):
        yield from _given_once([(pattern.format(i), name) for i, name in enumerate(names)])


def _given_once(names: list[tuple[str, str]]) -> Iterator[Contradiction]:
    num_uses: Counter[str] = Counter()
    for field, name in names:
        num_uses[name] += 1
        if num_uses[name] == 2:
            yield field, "is given more than once; each needs a name of its own"


def _data_set_is_one(dataset: Dataset | Mixture) -> Iterator[Contradiction]:
    if isinstance(dataset, CountdownDataset) and dataset.numbers[0] > dataset.numbers[1]:
        yield "numbers", "must be [low, high] with low <= high; swap them"
    if isinstance(dataset, RowsDataset):
        if dataset.mapping != "plain":
            for name in sorted({"prompt_field", "answer_field"} & dataset.model_fields_set):
                yield name, f"mapping {dataset.mapping} knows its fields itself; remove it"
        yield from _dates_are_a_window(dataset)


def _dates_are_a_window(dataset: RowsDataset) -> Iterator[Contradiction]:
    first = dataset.from_date
    last = dataset.to_date
    if dataset.mapping != "livecodebench":
        for name in ("from_date", "to_date"):
            if getattr(dataset, name) is not None:
                yield name, f"mapping {dataset.mapping} has no dates, livecodebench has; remove it"
    elif first is not None and last is not None and first > last:
        yield "to_date", f"is before from_date, {first}; swap them", "from_date"


def _services_fit(grading: Grading, grader: Grader, redis: Redis) -> Iterator[Contradiction]:
    if grading.sandbox == "remote" and grader.patience_seconds <= grading.longest_wall_seconds:
        yield (
            "grader.patience_seconds",
            f"must exceed tasks.grading.deadline_seconds {grading.longest_seconds:g} and the wait "
            f"for a core that it allows, {grading.longest_wall_seconds:g} s in all; raise "
            "grader.patience_seconds or lower deadline_seconds",
            "tasks.grading",
        )
    if redis.socket is not None and redis.tls is not None:
        yield "redis.socket", "a Unix socket carries no TLS; remove redis.tls", "redis.tls"


def _autoscaler_knows_its_fleet(autoscaler: Autoscaler) -> Iterator[Contradiction]:
    if autoscaler.least > autoscaler.most:
        yield ("least", f"exceeds most, {autoscaler.most}; lower least or raise most", "most")
    if autoscaler.deployment is not None:
        return
    if autoscaler.mode == "controller":
        yield "mode", "needs deployment, the name of the generators' Deployment; set it"
    requirement = "needs autoscaler.deployment, whose generators"
    if autoscaler.trainer_jobs is not None:
        yield "trainer_jobs", f"{requirement} are let go; set it"
    if autoscaler.replaced_jobs is not None:
        yield "replaced_jobs", f"{requirement} wait for the trainer; set it"


def _data_sets_have_a_place(tasks: Tasks) -> Iterator[Wrong]:
    for field, dataset in _datasets(tasks):
        if (
            isinstance(dataset, HuggingfaceDataset)
            and dataset.path is None
            and dataset.mapping == "plain"
        ):
            yield Wrong(
                f"{field}.path",
                "is missing: give the data set's name on the hub, such as openai/gsm8k",
            )


def _datasets(tasks: Tasks) -> Iterator[tuple[str, Dataset | Mixture]]:
    """Every data set with the setting that holds it."""
    dataset = tasks.dataset
    yield "tasks.dataset", dataset
    if isinstance(dataset, Mixture):
        for index, mixture_part in enumerate(dataset.parts):
            yield f"tasks.dataset.parts.{index}.dataset", mixture_part.dataset
    for index, item in enumerate(tasks.downstream):
        yield f"tasks.downstream.{index}.dataset", item.dataset


def _one_logger_of_a_kind(log: tuple[Log, ...]) -> Iterator[Wrong]:
    for kind, count in Counter(item.kind for item in log).items():
        if count > 1:
            yield wrong_value(
                "log",
                f"{count} of kind {kind}",
                "a run is logged to each kind once; leave one of them",
            )


def _loggers_are_installed(log: tuple[Log, ...]) -> Iterator[Wrong]:
    for item in log:
        if (
            find_spec(item.kind) is None
        ):  # the package has the name of the kind, as Rollcast's extra has
            remedy = f"pip install 'rollcast[{item.kind}]', or take it out of log"
            yield Wrong(
                "log",
                f"kind {item.kind} needs the package {item.kind}, which is not installed; {remedy}",
            )


def _the_run_ends(budget: Budget, stop_when: StopWhen | None) -> Iterator[Wrong]:
    bounds = budget.steps is not None or budget.device_hours is not None
    if not (bounds or budget.endless or stop_when is not None):
        yield Wrong(
            "budget",
            "sets neither steps nor device_hours, so the run would never end; set one of them, or "
            "stop_when, or endless: true for a run that only Ctrl-C ends",
        )
    if bounds and budget.endless:
        bound_fields = ("budget.steps", "budget.device_hours")
        yield wrong_value(
            "budget.endless",
            True,
            "contradicts steps and device_hours; remove it or them",
            *bound_fields,
        )
