"""The rules across settings, each once.

A rule looks at a whole run file and names the setting to fix, and the one that it contradicts. `rollcast
config check`, every process that reads a run file, and the chart's check before an install apply this list and no other.
"""

from collections import Counter
from collections.abc import Iterator

from rollcast.config.autoscaler import Autoscaler
from rollcast.config.datasets import CountdownDataset, Dataset, HuggingfaceDataset, Mixture, RowsDataset
from rollcast.config.engine_arguments import EngineArguments
from rollcast.config.loggers import Log, is_installed
from rollcast.config.model import Model
from rollcast.config.recipe import (
    DifficultyAllocation,
    Interruption,
    LengthPenalty,
    PipelineSchedule,
    Recipe,
    ReinforceLoss,
)
from rollcast.config.schema import RunConfig
from rollcast.config.sentences import Wrong, wrong_value
from rollcast.config.services import (
    Budget,
    CurveFile,
    CurveQueries,
    Forecaster,
    Generator,
    Grader,
    Redis,
    StopWhen,
)
from rollcast.config.tasks import Grading, PromptFormat, Tasks


def broken_rules(config: RunConfig, *, to_start: bool = False) -> Iterator[Wrong]:
    """Mistakes in settings that are right one by one. `to_start`: a run is started from them, so it must end."""
    recipe = config.recipe
    model = config.model
    tasks = config.tasks
    yield from _lengths_fit_the_model(recipe, model)
    yield from _groups_fit_a_generator(config.generator, recipe, tasks)
    yield from _an_earlier_run_knows_what_it_spent(model)
    yield from _graders_have_time(tasks.grading, config.grader)
    yield from _refilling_needs_a_filter(recipe)
    yield from _prompts_fill_a_step(recipe)
    yield from _reinforce_is_on_policy(recipe)
    yield from _allocation_is_a_range(recipe)
    yield from _quantised_weights_are_bfloat16(config.generator.engine, model)
    yield from _interruption_fits_the_budget(recipe)
    yield from _penalty_fits_the_budget(recipe)
    yield from _prompt_format_is_one(tasks.prompt_format)
    yield from _data_sets_have_names_of_their_own(tasks)
    yield from _verifiers_have_names_of_their_own(tasks)
    yield from _curves_have_names_of_their_own(config.forecaster)
    yield from _data_sets_have_a_place(tasks)
    yield from _autoscaler_knows_its_fleet(config.autoscaler)
    yield from _one_logger_of_a_kind(config.log)
    yield from _a_socket_needs_no_tls(config.redis)
    if to_start:
        yield from _the_run_ends(config.budget, config.stop_when)
        yield from _loggers_are_installed(config.log)


def _the_run_ends(budget: Budget, stop_when: StopWhen | None) -> Iterator[Wrong]:
    bounds = budget.steps is not None or budget.device_hours is not None
    if not (bounds or budget.endless or stop_when is not None):
        yield Wrong(
            "budget",
            "sets neither steps nor device_hours, so the run would never end; set one of them, or stop_when, or "
            "endless: true for a run that only Ctrl-C ends",
        )
    if bounds and budget.endless:
        yield wrong_value(
            "budget.endless",
            True,
            "contradicts steps and device_hours; remove it or them",
            "budget.steps",
            "budget.device_hours",
        )


def _lengths_fit_the_model(recipe: Recipe, model: Model) -> Iterator[Wrong]:
    length = model.max_length
    need = recipe.max_prompt_tokens + recipe.max_completion_tokens
    if need > length:
        yield wrong_value(
            "model.max_length",
            length,
            f"recipe.max_prompt_tokens {recipe.max_prompt_tokens} + recipe.max_completion_tokens "
            f"{recipe.max_completion_tokens} = {need} exceed it; lower one of these, or raise "
            "model.max_length as far as the model's context allows",
            "recipe.max_prompt_tokens",
            "recipe.max_completion_tokens",
        )


def _groups_fit_a_generator(generator: Generator, recipe: Recipe, tasks: Tasks) -> Iterator[Wrong]:
    slots = generator.most_slots
    groups = {
        "recipe.rollouts_per_prompt": recipe.rollouts_per_prompt,
        "tasks.evaluation.rollouts_per_prompt": tasks.evaluation.rollouts_per_prompt,
        **{f"tasks.downstream.{i}.rollouts_per_prompt": d.rollouts_per_prompt for i, d in enumerate(tasks.downstream)},
    }
    if isinstance(recipe.rollout_allocation, DifficultyAllocation):
        groups["recipe.rollout_allocation.most"] = recipe.rollout_allocation.most
    for field, rollouts in groups.items():
        if rollouts > slots:
            yield wrong_value(
                field,
                rollouts,
                f"the rollouts of one prompt stay together, and a generator has generator.slots {slots}; lower "
                f"{field} or raise generator.slots",
                "generator.slots",
            )


def _an_earlier_run_knows_what_it_spent(model: Model) -> Iterator[Wrong]:
    if model.from_run is not None and model.spent_device_hours is not None:
        yield wrong_value(
            "model.spent_device_hours",
            model.spent_device_hours,
            "the checkpoint of model.from_run contains the spent device-hours; remove one of the two",
            "model.from_run",
        )


def _graders_have_time(grading: Grading, grader: Grader) -> Iterator[Wrong]:
    patience = grader.patience_seconds
    if grading.sandbox == "remote" and patience <= grading.longest_wall_seconds:
        yield wrong_value(
            "grader.patience_seconds",
            patience,
            f"must exceed tasks.grading.deadline_seconds {grading.longest_seconds:g} and the wait for a core that it "
            f"allows, {grading.longest_wall_seconds:g} s in all; raise grader.patience_seconds or lower "
            "deadline_seconds",
            "tasks.grading",
        )


def _refilling_needs_a_filter(recipe: Recipe) -> Iterator[Wrong]:
    if recipe.refill_filtered and not recipe.zero_variance_filter:
        yield wrong_value(
            "recipe.refill_filtered",
            True,
            "it refills what recipe.zero_variance_filter drops; set that to true or refill_filtered to false",
            "recipe.zero_variance_filter",
        )


def _prompts_fill_a_step(recipe: Recipe) -> Iterator[Wrong]:
    unique = recipe.unique_prompts
    needed = recipe.prompts_per_step
    if unique is not None and unique < needed:
        yield wrong_value(
            "recipe.unique_prompts",
            unique,
            f"is less than recipe.prompts_per_step {needed}, so a step would hold a prompt twice; raise "
            "recipe.unique_prompts or lower prompts_per_step",
            "recipe.prompts_per_step",
        )


def _reinforce_is_on_policy(recipe: Recipe) -> Iterator[Wrong]:
    schedule = recipe.schedule
    on_policy = 0 if isinstance(schedule, PipelineSchedule) else 1
    if isinstance(recipe.loss, ReinforceLoss) and schedule.max_staleness > on_policy:
        yield wrong_value(
            "recipe.schedule.max_staleness",
            schedule.max_staleness,
            "recipe.loss reinforce has no ratio that corrects for older weights, and schedule "
            f"{schedule.kind} trains on them; set max_staleness {on_policy} or choose another loss",
            "recipe.loss",
        )


def _allocation_is_a_range(recipe: Recipe) -> Iterator[Wrong]:
    allocation = recipe.rollout_allocation
    usual = recipe.rollouts_per_prompt
    if not isinstance(allocation, DifficultyAllocation):
        return
    if allocation.least > allocation.most:
        yield wrong_value(
            "recipe.rollout_allocation.least",
            allocation.least,
            f"must not exceed most, {allocation.most}; lower least or raise most",
            "recipe.rollout_allocation.most",
        )
    elif not allocation.least <= usual <= allocation.most:
        yield wrong_value(
            "recipe.rollouts_per_prompt",
            usual,
            f"is outside recipe.rollout_allocation's {allocation.least} to {allocation.most}; widen that "
            "range or change recipe.rollouts_per_prompt",
            "recipe.rollout_allocation",
        )


def _interruption_fits_the_budget(recipe: Recipe) -> Iterator[Wrong]:
    control = recipe.length_control
    most = recipe.max_completion_tokens
    if not isinstance(control, Interruption):
        return
    low, high = control.position
    if not 1 <= low <= high:
        yield wrong_value(
            "recipe.length_control.position", list(control.position), "must be [low, high] with 1 <= low <= high"
        )
    elif high + control.answer_tokens >= most:
        yield wrong_value(
            "recipe.length_control.position",
            list(control.position),
            f"with answer_tokens {control.answer_tokens} it leaves no room for the phrase in "
            f"recipe.max_completion_tokens {most}; lower position and answer_tokens, raise max_completion_tokens, or set "
            "recipe.length_control: {kind: none}",
            "recipe.length_control.answer_tokens",
            "recipe.max_completion_tokens",
        )


def _penalty_fits_the_budget(recipe: Recipe) -> Iterator[Wrong]:
    control = recipe.length_control
    most = recipe.max_completion_tokens
    if not isinstance(control, LengthPenalty):
        return
    if control.cache_tokens > control.max_tokens:
        yield wrong_value(
            "recipe.length_control.cache_tokens",
            control.cache_tokens,
            f"exceeds max_tokens {control.max_tokens}, which penalises every answer; lower cache_tokens or "
            "raise max_tokens",
            "recipe.length_control.max_tokens",
        )
    elif control.max_tokens - control.cache_tokens >= most:
        yield wrong_value(
            "recipe.length_control.max_tokens",
            control.max_tokens,
            f"the penalty begins at max_tokens - cache_tokens {control.cache_tokens}, and recipe.max_completion_tokens "
            f"is {most}: no completion is that long; lower recipe.length_control.max_tokens",
            "recipe.length_control.cache_tokens",
            "recipe.max_completion_tokens",
        )


def _prompt_format_is_one(prompt_format: PromptFormat) -> Iterator[Wrong]:
    field = "tasks.prompt_format"
    if prompt_format.layout == "bare" and (
        prompt_format.system is not None or prompt_format.enable_thinking is not None
    ):
        yield wrong_value(
            f"{field}.layout",
            prompt_format.layout,
            "takes neither system nor enable_thinking; remove them or choose another layout",
            f"{field}.system",
            f"{field}.enable_thinking",
        )
    if prompt_format.open_thinking and prompt_format.enable_thinking is False:
        yield wrong_value(
            f"{field}.open_thinking",
            True,
            "contradicts enable_thinking: false; remove one of the two",
            f"{field}.enable_thinking",
        )


def _data_sets_have_names_of_their_own(tasks: Tasks) -> Iterator[Wrong]:
    names: Counter[str] = Counter()
    for field, dataset in _datasets(tasks):
        names[dataset.name] += 1
        if names[dataset.name] == 2:
            yield wrong_value(f"{field}.name", dataset.name, "is given more than once; each needs a name of its own")


def _verifiers_have_names_of_their_own(tasks: Tasks) -> Iterator[Wrong]:
    names: Counter[str] = Counter()
    for index, verifier in enumerate(tasks.verifiers):
        names[verifier.name] += 1
        if names[verifier.name] == 2:
            field = f"tasks.verifiers.{index}.name"
            yield wrong_value(field, verifier.name, "is given more than once; each needs a name of its own")


def _curves_have_names_of_their_own(forecaster: Forecaster) -> Iterator[Wrong]:
    source = forecaster.source
    runs: Counter[str] = Counter()
    curves: tuple[CurveFile | CurveQueries, ...] = () if source.kind == "scrape" else source.curves
    for index, curve in enumerate(curves):
        runs[curve.run] += 1
        if runs[curve.run] == 2:
            field = f"forecaster.source.curves.{index}.run"
            yield wrong_value(field, curve.run, "is given more than once; each needs a name of its own")


def _data_sets_have_a_place(tasks: Tasks) -> Iterator[Wrong]:
    for field, dataset in _datasets(tasks):
        if isinstance(dataset, CountdownDataset) and dataset.numbers[0] > dataset.numbers[1]:
            yield wrong_value(
                f"{field}.numbers", list(dataset.numbers), "must be [low, high] with low <= high; swap them"
            )
        if isinstance(dataset, RowsDataset) and dataset.mapping != "plain":
            for name in sorted({"prompt_field", "answer_field"} & dataset.model_fields_set):
                value = getattr(dataset, name)
                yield wrong_value(
                    f"{field}.{name}", value, f"mapping {dataset.mapping} knows its fields itself; remove it"
                )
        if isinstance(dataset, HuggingfaceDataset) and dataset.path is None and dataset.mapping == "plain":
            yield Wrong(f"{field}.path", "is missing: give the data set's name on the hub, such as openai/gsm8k")


def _autoscaler_knows_its_fleet(autoscaler: Autoscaler) -> Iterator[Wrong]:
    if autoscaler.least > autoscaler.most:
        yield wrong_value(
            "autoscaler.least",
            autoscaler.least,
            f"exceeds most, {autoscaler.most}; lower least or raise most",
            "autoscaler.most",
        )
    if autoscaler.mode == "controller" and autoscaler.deployment is None:
        yield wrong_value(
            "autoscaler.mode", autoscaler.mode, "needs deployment, the name of the generators' Deployment; set it"
        )
    if autoscaler.trainer_jobs is not None and autoscaler.deployment is None:
        yield wrong_value(
            "autoscaler.trainer_jobs",
            autoscaler.trainer_jobs,
            "needs autoscaler.deployment, whose generators are let go; set it",
        )


def _one_logger_of_a_kind(log: tuple[Log, ...]) -> Iterator[Wrong]:
    for kind, count in Counter(item.kind for item in log).items():
        if count > 1:
            yield wrong_value("log", f"{count} of kind {kind}", "a run is logged to each kind once; leave one of them")


def _loggers_are_installed(log: tuple[Log, ...]) -> Iterator[Wrong]:
    for item in log:
        if not is_installed(item):
            remedy = f"pip install 'rollcast[{item.kind}]', or take it out of log"
            yield Wrong("log", f"kind {item.kind} needs the package {item.kind}, which is not installed; {remedy}")


def _datasets(tasks: Tasks) -> Iterator[tuple[str, Dataset | Mixture]]:
    """Every data set with the setting that holds it."""
    dataset = tasks.dataset
    yield "tasks.dataset", dataset
    if isinstance(dataset, Mixture):
        for index, part in enumerate(dataset.parts):
            yield f"tasks.dataset.parts.{index}.dataset", part.dataset
    for index, item in enumerate(tasks.downstream):
        yield f"tasks.downstream.{index}.dataset", item.dataset


def _quantised_weights_are_bfloat16(engine: EngineArguments, model: Model) -> Iterator[Wrong]:
    quantization = engine.quantization
    if quantization is not None and model.dtype != "bfloat16":
        yield wrong_value(
            "generator.engine.quantization",
            quantization,
            f"it quantises bfloat16 weights, and model.dtype is {model.dtype}; set that to bfloat16 or remove quantization",
            "model.dtype",
        )


def _a_socket_needs_no_tls(redis: Redis) -> Iterator[Wrong]:
    if redis.socket is not None and redis.tls is not None:
        yield wrong_value(
            "redis.socket", str(redis.socket), "a Unix socket carries no TLS; remove redis.tls", "redis.tls"
        )
