"""The rules across the settings of a recipe. `rollcast.config.rules` applies them."""

from collections.abc import Iterator

from rollcast.config.custom_function import CustomFunction
from rollcast.config.distillation import EndpointTeacher
from rollcast.config.recipe import (
    DifficultyAllocation,
    Interruption,
    LengthPenalty,
    PipelineSchedule,
    Recipe,
)
from rollcast.config.sentences import Contradiction


def recipe_is_one(recipe: Recipe) -> Iterator[Contradiction]:
    yield from _parts_agree(recipe)
    if not recipe.uses_reward:
        yield from _nothing_needs_rewards(recipe)
    yield from _older_weights_are_corrected_once(recipe)
    yield from _allocation_is_a_range(recipe)
    yield from _length_control_fits_the_budget(recipe)


def _parts_agree(recipe: Recipe) -> Iterator[Contradiction]:
    if recipe.refill_filtered and not recipe.zero_variance_filter:
        yield (
            "refill_filtered",
            "it refills what recipe.zero_variance_filter drops; set that to true or "
            "refill_filtered to false",
            "zero_variance_filter",
        )
    if recipe.scale_by_difficulty and recipe.kl is None and recipe.entropy_bonus == 0:
        yield (
            "scale_by_difficulty",
            "it scales recipe.kl and recipe.entropy_bonus, and both are off; set one of these, or "
            "scale_by_difficulty to false",
            "kl",
            "entropy_bonus",
        )
    if recipe.unique_prompts is not None and recipe.unique_prompts < recipe.prompts_per_step:
        yield (
            "unique_prompts",
            f"is less than recipe.prompts_per_step {recipe.prompts_per_step}, so a step would "
            "hold a prompt twice; raise recipe.unique_prompts or lower prompts_per_step",
            "prompts_per_step",
        )
    distillation = recipe.distillation
    if (
        distillation
        and isinstance(distillation.teacher, EndpointTeacher)
        and recipe.temperature != 1
    ):
        yield (
            "temperature",
            "an endpoint gives the teacher's log-probs at temperature 1, unlike the sampled ones; "
            "set it to 1, or give recipe.distillation.teacher: {kind: folder, path: ...}",
            "distillation",
        )


def _older_weights_are_corrected_once(recipe: Recipe) -> Iterator[Contradiction]:
    schedule = recipe.schedule
    on_policy = 0 if isinstance(schedule, PipelineSchedule) else 1
    truncation = recipe.corrections.truncation
    if not recipe.loss.has_ratio and truncation is None and schedule.max_staleness > on_policy:
        yield (
            "schedule.max_staleness",
            f"recipe.loss {recipe.loss.kind} has no ratio that corrects for older weights, and "
            f"schedule {schedule.kind} trains on them; set max_staleness {on_policy}, "
            "recipe.corrections.truncation or another loss",
            "loss",
        )
    if isinstance(recipe.loss, CustomFunction) and truncation is not None:
        yield (
            "corrections.truncation.ratio_max",
            f"is for a loss without a ratio, and whether {recipe.loss.function} has one is not "
            "known; multiply by the ratio in that function, or set recipe.loss: {kind: reinforce}",
            "loss",
        )
    elif recipe.loss.has_ratio and truncation is not None:
        yield (
            "corrections.truncation.ratio_max",
            f"recipe.loss {recipe.loss.kind} contains the ratio already; remove "
            "recipe.corrections.truncation or set recipe.loss: {kind: reinforce}",
            "loss",
        )


def _nothing_needs_rewards(recipe: Recipe) -> Iterator[Contradiction]:
    """Parts that have no effect, or cannot work, if a teacher alone decides."""
    with_reward = "distillation.with_reward"
    remedy = f"remove it or set recipe.{with_reward} to true"
    if recipe.advantage is not None:
        yield (
            "advantage.function",
            f"it turns rewards into advantages, and the teacher alone gives these; {remedy}",
            with_reward,
        )
    if isinstance(recipe.length_control, LengthPenalty | CustomFunction):
        yield (
            "length_control.kind",
            f"it changes rewards, and the teacher alone decides; {remedy}",
            with_reward,
        )
    if recipe.refill_filtered:
        yield (
            "refill_filtered",
            "with the teacher alone no group is dropped for its rewards, so there is nothing "
            f"to refill; {remedy}",
            with_reward,
        )
    if recipe.scale_by_difficulty:
        yield (
            "scale_by_difficulty",
            f"difficulty is measured by rewards, and the teacher alone decides; {remedy}",
            with_reward,
        )


def _allocation_is_a_range(recipe: Recipe) -> Iterator[Contradiction]:
    allocation = recipe.rollout_allocation
    if not isinstance(allocation, DifficultyAllocation):
        return
    if allocation.least > allocation.most:
        yield (
            "rollout_allocation.least",
            f"must not exceed most, {allocation.most}; lower least or raise most",
            "rollout_allocation.most",
        )
    elif not allocation.least <= recipe.rollouts_per_prompt <= allocation.most:
        yield (
            "rollouts_per_prompt",
            f"is outside recipe.rollout_allocation's {allocation.least} to {allocation.most}; "
            "widen that range or change recipe.rollouts_per_prompt",
            "rollout_allocation",
        )


def _length_control_fits_the_budget(recipe: Recipe) -> Iterator[Contradiction]:
    control = recipe.length_control
    limit = recipe.max_completion_tokens
    if isinstance(control, Interruption):
        low, high = control.position
        if not 1 <= low <= high:
            yield "length_control.position", "must be [low, high] with 1 <= low <= high"
        elif high + control.answer_tokens >= limit:
            yield (
                "length_control.position",
                f"with answer_tokens {control.answer_tokens} it leaves no room for the phrase in "
                f"recipe.max_completion_tokens {limit}; lower position and answer_tokens, raise "
                "max_completion_tokens, or set recipe.length_control: {kind: none}",
                "length_control.answer_tokens",
                "max_completion_tokens",
            )
    elif isinstance(control, LengthPenalty):
        if control.cache_tokens > control.max_tokens:
            yield (
                "length_control.cache_tokens",
                f"exceeds max_tokens {control.max_tokens}, which penalises every answer; lower "
                "cache_tokens or raise max_tokens",
                "length_control.max_tokens",
            )
        elif control.max_tokens - control.cache_tokens >= limit:
            yield (
                "length_control.max_tokens",
                f"the penalty begins at max_tokens - cache_tokens {control.cache_tokens}, and "
                f"recipe.max_completion_tokens is {limit}: no completion is that long; lower "
                "recipe.length_control.max_tokens",
                "length_control.cache_tokens",
                "max_completion_tokens",
            )
