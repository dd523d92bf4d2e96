"""The parts of a recipe, what takes the place of each when it is left out, and whole recipes on
another base.

A variant is a change of the base run file: nested settings that are put over it. Lengths of the
paper (14,000 tokens of a budget of 14,336) are scaled to the base's own completion budget.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.config.base import Settings
from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.config.losses.cispo import CispoLoss
from rollcast.config.recipe import Interruption, LengthPenalty, NoLengthControl, Recipe
from rollcast.config.resolved import differences, plain
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.config.tasks import Tasks
from rollcast.tasks.prompts import load

Change = dict[str, Any]
"""Settings put over a run file; a mapping that names a `kind` replaces the whole mapping there."""
PAPERS_BUDGET = Recipe().max_completion_tokens
"""Completion tokens of the paper's base recipe (A.3)."""
PAPERS_BATCH = Recipe().prompts_per_step
"""Prompts of a step of the paper's base recipe (A.3)."""
DEFAULT_PROMPT_USES = 4
"""Without fresh data one prompt of this many stays, unless another number is given."""
SIZES = ("prompts_per_step", "rollouts_per_prompt", "max_prompt_tokens", "max_completion_tokens")
KEPT = (*SIZES, "optimizer", "router_replay")
"""Settings that stay the base's if another recipe is tried on it: batch, budgets, optimizer, the
model's routers."""
SWITCHES = tuple(name for name in Recipe.model_fields if name not in KEPT)
"""Settings that a recipe brings to another base."""


@dataclass(frozen=True, slots=True)
class RecipePart:
    name: str
    instead: str
    """The replacement of the part, in words."""
    is_in: Callable[[Recipe], bool]
    without: Callable[[Recipe, Tasks], Change]


def _part(name: str, instead: str, **change: object) -> RecipePart:
    """`change`: settings of the recipe, or functions of the base's that return them; the first one
    holds the part.
    """
    setting = next(iter(change))

    def is_in(recipe: Recipe) -> bool:
        """The setting is ScaleRL's; of a group the kind, and of a pass rate that there is one."""
        value = getattr(recipe, setting)
        usual = getattr(Recipe(), setting)
        return type(value) is type(usual) and (
            value == usual or isinstance(value, Settings | float)
        )

    def without(base: Recipe, tasks: Tasks) -> Change:
        settings = {key: value(base) if callable(value) else value for key, value in change.items()}
        return {"recipe": settings}

    return RecipePart(name, instead, is_in, without)


def _custom_function(
    name: str, instead: str, setting: str, replacement: Settings | None
) -> RecipePart:
    """A function of the user's own, with what takes its place."""

    def is_in(recipe: Recipe) -> bool:
        return isinstance(getattr(recipe, setting), CustomFunction)

    def without(base: Recipe, tasks: Tasks) -> Change:
        return {"recipe": {setting: None if replacement is None else plain(replacement)}}

    return RecipePart(name, instead, is_in, without)


def _papers_penalty(base: Recipe) -> Change:
    return _penalty(LengthPenalty(), base.max_completion_tokens / PAPERS_BUDGET)


def _off_policy(base: Recipe) -> Change:
    return {"kind": "ppo-off-policy", "max_staleness": max(1, base.schedule.max_staleness)}


PARTS: tuple[RecipePart, ...] = (
    # In arXiv 2510.13786: figures 5a, 5b, 14a, 14b, 6a, 6b, 7 and 4a; figure 7 has all of them.
    _part("cispo", "the DAPO loss", loss={"kind": "dapo", "clip_low": 0.2, "clip_high": 0.26}),
    _part("fp32_head", "the LM head in the model's precision", lm_head="model"),
    _part("prompt_average", "sample average", aggregation="sample"),
    _part(
        "batch_normalisation", "advantages normalised by prompt", advantage_normalisation="prompt"
    ),
    _part(
        "zero_variance_filter",
        "groups without variance kept in the batch",
        zero_variance_filter=False,
        refill_filtered=False,
    ),
    _part("no_positive_resampling", "uniform sampling", no_positive_resampling=None),
    _part("interruption", "the length penalty", length_control=_papers_penalty),
    _part("pipeline", "PPO-off-policy of the same k", schedule=_off_policy),
    # Parts of the user's own.
    _custom_function("own_loss", "the CISPO loss", "loss", CispoLoss()),
    _custom_function("own_advantage", "recipe.advantage_normalisation", "advantage", None),
    _custom_function("own_filter", "no filter of your own", "filter", None),
    _custom_function("own_curriculum", "no curriculum of your own", "curriculum", None),
    _custom_function(
        "own_length_control", "no length control", "length_control", NoLengthControl()
    ),
)
"""The eight of the paper's leave-one-out table, and those that a user may add."""

FRESH_DATA = "fresh_data"


def fresh_data(reuse: int = DEFAULT_PROMPT_USES) -> RecipePart:
    """Data reuse as an axis, on demand only, since it is no switch of the recipe: a prompt of
    `reuse` stays.
    """
    name = FRESH_DATA if reuse == DEFAULT_PROMPT_USES else f"{FRESH_DATA}:{reuse}"

    def without(base: Recipe, tasks: Tasks) -> Change:
        num_prompts = min(base.unique_prompts or 1 << 62, len(load(tasks).train))
        step = base.prompts_per_step
        if num_prompts // reuse < step:
            raise UserError(
                f"--without {name}: 1 in {reuse} of the {num_prompts} training prompts makes "
                f"{num_prompts // reuse}, and a step takes {step} different ones; train on "
                f"{reuse * step} or more, or lower recipe.prompts_per_step"
            )
        return {"recipe": {"unique_prompts": num_prompts // reuse}}

    return RecipePart(
        name, f"1 prompt in {reuse}, used {reuse} times as often,", lambda recipe: True, without
    )


def find_part(name: str) -> RecipePart:
    """Raises UserError: lists the parts, or names the mistake in N of `fresh_data:N`."""
    kind, colon, number = name.replace("-", "_").partition(":")
    if kind == FRESH_DATA:
        if colon and not (number.isdecimal() and 2 <= int(number) <= 1_000):
            raise UserError(
                f"--without {name}: {number!r} is no number from 2 to 1000; write {FRESH_DATA}:8 "
                "or so"
            )
        return fresh_data(int(number) if colon else DEFAULT_PROMPT_USES)
    for component in PARTS:
        if not colon and component.name == kind:
            return component
    part_names = ", ".join(
        [*(component.name for component in PARTS), FRESH_DATA, f"{FRESH_DATA}:N"]
    )
    raise UserError(f"--without {name}: no such part; choose from {part_names}")


def apply_change(base: RunConfig, change: Mapping[str, Any], source: str) -> RunConfig:
    """`base` with the change put over it, checked again.

    Raises UserError, beginning with `source`, if they clash.
    """
    return parse_run_config(merge_settings(plain(base), change), source=source)


def is_same_in_effect(first_config: RunConfig, second_config: RunConfig) -> bool:
    """Whether both train alike: run, seed and folder may differ, and the head if the model is as
    precise.
    """
    effective = [
        config.model_dump(exclude={"run", "seed", "folder"})
        for config in (first_config, second_config)
    ]
    for settings in effective:
        if settings["model"]["dtype"] == "float32":
            settings["recipe"]["lm_head"] = "fp32"
    return effective[0] == effective[1]


def transplant_recipe(recipe: Recipe, base: Recipe, *, is_published: bool) -> Change:
    """The switches of `recipe` as a change of `base`, lengths scaled from its completion budget to
    the base's.

    `is_published`: of the paper; where such a one is defined by a larger batch than the paper's 48
    prompts, the base's is larger by as much.
    """
    settings = {
        name: value for name, value in recipe.model_dump(mode="json").items() if name in SWITCHES
    }
    control = recipe.length_control
    if recipe.max_completion_tokens != base.max_completion_tokens:
        share = base.max_completion_tokens / recipe.max_completion_tokens
        if isinstance(control, LengthPenalty):
            settings["length_control"] = _penalty(control, share)
        elif isinstance(control, Interruption):
            settings["length_control"] = _interruption(control, base, share)
    if _brings_its_batch(recipe, is_published):
        settings["prompts_per_step"] = round(
            base.prompts_per_step * recipe.prompts_per_step / PAPERS_BATCH
        )
    return {"recipe": settings}


def _brings_its_batch(recipe: Recipe, is_published: bool) -> bool:
    return is_published and recipe.prompts_per_step != PAPERS_BATCH


def left_behind(recipe: Recipe, base: Recipe, *, is_published: bool) -> dict[str, tuple[Any, Any]]:
    """Settings of `recipe` that `transplant_recipe` does not bring although they differ: name ->
    (its own, the base's).

    Lengths and a batch that are scaled are brought; the interruption of a base with one of its own
    stays.
    """
    names = set(KEPT)
    if (
        isinstance(recipe.length_control, Interruption)
        and isinstance(base.length_control, Interruption)
        and recipe.max_completion_tokens != base.max_completion_tokens
    ):
        names.add("length_control")
    if _brings_its_batch(recipe, is_published):
        names.remove("prompts_per_step")
    recipe_differences = differences(recipe, base)
    return {
        difference.field: (difference.old_value, difference.new_value)
        for difference in recipe_differences
        if difference.field.partition(".")[0] in names
    }


def merge_settings(settings: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(settings)
    for name, value in change.items():
        old = merged.get(name)
        if isinstance(value, Mapping) and isinstance(old, dict) and "kind" not in value:
            merged[name] = merge_settings(old, value)
        else:
            merged[name] = value
    return merged


def _scale_tokens(tokens: int, share: float) -> int:
    return max(1, round(tokens * share))


def _penalty(control: LengthPenalty, share: float) -> Change:
    return {
        "kind": "penalty",
        "max_tokens": _scale_tokens(control.max_tokens, share),
        "cache_tokens": _scale_tokens(control.cache_tokens, share),
    }


def _interruption(control: Interruption, base: Recipe, share: float) -> Change:
    """The base's own if it has one: phrase and marker belong to the model and its data."""
    if isinstance(base.length_control, Interruption):
        return base.length_control.model_dump(mode="json")
    low, high = (_scale_tokens(position, share) for position in control.position)
    answer = max(
        1, min(_scale_tokens(control.answer_tokens, share), base.max_completion_tokens - high - 1)
    )
    return control.model_dump(mode="json") | {"position": [low, high], "answer_tokens": answer}
