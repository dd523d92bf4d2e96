"""Parts of a recipe that are functions of the user's own: the records that they receive, and how
they are called.

Every function is called in the trainer. A result that cannot be used, or an exception, ends the run
with one sentence. docs/recipes.md, section "A part of your own", has the table.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.config.function_loading import (
    check_file,
    definition,
    failure,
    file_digest,
    is_function,
    load_function,
)
from rollcast.config.out_of_memory import is_out_of_memory
from rollcast.config.recipe import Recipe

LOSS = "recipe.loss"
"""The setting of a loss: the one part that computes on the ranks' devices."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchRecord:
    """Record from which an advantage is computed: the R kept rollouts of one step."""

    rewards: NDArray[np.float64]
    """[R] rewards, the length penalty included."""
    group: NDArray[np.int64]
    """[R] index of each rollout's prompt in the step."""
    loss_tokens: NDArray[np.int64]
    """[R] tokens that carry loss, of an episode those of all its turns."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupRecord:
    """Record on which a filter decides: a prompt's G rollouts that count (neither cut off nor
    without a verdict).
    """

    rewards: NDArray[np.float64]
    """[G] rewards of the verifier, from 0 to 1, without a length penalty."""
    loss_tokens: NDArray[np.int64]
    """[G] tokens that carry loss, of an episode those of all its turns."""


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """Record on which a curriculum decides: one prompt and its past in training."""

    prompt_id: str
    epoch: int
    """Passes over all prompts that were completed before."""
    reward: float
    """Sum of the rewards of the graded rollouts so far."""
    graded: int
    """Rollouts with a verdict so far."""
    evaluations: int
    """Groups that came back so far."""


@dataclass(frozen=True, slots=True)
class CompletionRecord:
    """Record from which a length penalty is computed: one completion."""

    num_tokens: int
    """Tokens of the completion; of an episode those that were sampled in all its turns."""
    max_tokens: int
    """The budget, recipe.max_completion_tokens."""
    reward: float
    """The verifier's reward, from 0 to 1."""
    truncated: bool
    """Whether the budget cut it off."""


@functools.cache
def _load_custom_function(setting: str, custom_function: CustomFunction) -> Callable[..., Any]:
    """Once a process: a file that is edited during the run changes nothing in it."""
    if is_function(custom_function.function):
        check_file(custom_function.function, setting)
    current_digest = file_digest(custom_function.function)
    if (
        custom_function.digest is not None
        and current_digest is not None
        and current_digest != custom_function.digest
    ):
        raise UserError(
            f"{setting} {custom_function.function}: the file's digest is {current_digest[:12]} and "
            f"{setting}.digest "
            f"{custom_function.digest[:12]}; restore the file, or remove digest to use it as it is"
        )
    try:
        return load_function(custom_function.function)
    except (Exception, SystemExit) as error:
        raise UserError(f"{setting} {custom_function.function}: {failure(error)}") from error


def load_custom_functions(recipe: Recipe) -> None:
    """Load every part now, so that a cluster's trainer, whose run file no command tried, ends
    before it reads weights.

    Raises UserError for the first that cannot be loaded.
    """
    for setting, custom_function in recipe.custom_functions.items():
        _load_custom_function(setting, custom_function)


class CustomFunctionCaller:
    """A function of the user's own.

    It is loaded at the first call, in the process that calls it.
    """

    def __init__(self, setting: str, custom_function: CustomFunction) -> None:
        self.setting = setting
        self.custom_function = custom_function

    def call(self, record: Any) -> Any:
        """Raises UserError that names setting, function and line, if it cannot be loaded, raises or
        calls sys.exit.

        A loss that is refused memory passes that error on.
        """
        function = _load_custom_function(self.setting, self.custom_function)
        try:
            return function(record)
        except (Exception, SystemExit) as error:
            if self.setting == LOSS and is_out_of_memory(error):
                raise  # not the function's fault: the update names the setting to lower
            raise UserError(
                f"{self.setting} {self.custom_function.function}: {failure(error, function)}"
            ) from error

    def make_result_error(self, returned_value: object, needed: str) -> UserError:
        """The error for a result that cannot be used."""
        value_text = " ".join(repr(returned_value).split())[:100]
        location = definition(_load_custom_function(self.setting, self.custom_function))
        return UserError(
            f"{self.setting} {self.custom_function.function}: returned {value_text}, needs "
            f"{needed}{location}"
        )

    def number(self, record: object, low: float, high: float) -> float:
        """Call it for a number from `low` to `high`."""
        returned_value = self.call(record)
        is_number = isinstance(returned_value, int | float | np.number | np.bool_)
        # False for NaN too.
        if not is_number or not low <= float(returned_value) <= high:
            raise self.make_result_error(returned_value, f"a number from {low:g} to {high:g}")
        return float(returned_value)


def custom_advantages(custom_function: CustomFunction, batch: BatchRecord) -> NDArray[np.float64]:
    """Return A [R] of the kept rollouts."""
    function = CustomFunctionCaller("recipe.advantage", custom_function)
    returned_value = function.call(batch)
    try:
        values = np.asarray(returned_value, dtype=np.float64)
    except (TypeError, ValueError):
        raise function.make_result_error(returned_value, "one number for each rollout") from None
    if values.shape != batch.rewards.shape:
        raise function.make_result_error(
            returned_value,
            f"shape [{len(batch.rewards)}], one number for each rollout, and not "
            f"{list(values.shape)}",
        )
    if not np.isfinite(values).all():
        raise function.make_result_error(returned_value, "finite numbers")
    return values


def custom_filter(custom_function: CustomFunction, group: GroupRecord) -> bool:
    """Whether the group is trained on."""
    function = CustomFunctionCaller("recipe.filter", custom_function)
    returned_value = function.call(group)
    if not isinstance(returned_value, bool | np.bool_):
        raise function.make_result_error(returned_value, "True (train on the group) or False")
    return bool(returned_value)


def custom_weight(custom_function: CustomFunction, prompt: PromptRecord) -> float:
    """Probability with which the prompt is drawn when its turn comes."""
    return CustomFunctionCaller("recipe.curriculum", custom_function).number(prompt, 0.0, 1.0)


def custom_penalty(custom_function: CustomFunction, completion: CompletionRecord) -> float:
    """Number that is added to the reward."""
    function = CustomFunctionCaller("recipe.length_control", custom_function)
    # Reward: what a length penalty may add or take off at most. Right and wrong are 1 apart, so
    # more is a mistake.
    max_penalty_reward = 10.0
    return function.number(completion, -max_penalty_reward, max_penalty_reward)
