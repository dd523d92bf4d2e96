"""`python -m rollcast.recipe.trial`: calls each part of a recipe that is the user's own, on small
made-up records.

A recipe as JSON on standard input. Standard output has one JSON object a line: {"tries": SETTING}
before each part, and {"passed": SETTING} after it, or {"failed": SENTENCE} if it gave nothing that
can be used. What the functions print goes to standard error.
"""

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

import numpy as np

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.config.losses.python import CustomLoss
from rollcast.config.recipe import Recipe
from rollcast.recipe.custom_functions import (
    BatchRecord,
    CompletionRecord,
    GroupRecord,
    PromptRecord,
    custom_advantages,
    custom_filter,
    custom_penalty,
    custom_weight,
)

TIMEOUT_SECONDS = 20.0
"""How long one function may take for all its records, its import included. They take milliseconds
in a run."""


class OutOfTimeError(BaseException):
    """Not an Exception: the function under trial may catch those."""


def find_failure(
    setting: str, recipe: Recipe, timeout_seconds: float = TIMEOUT_SECONDS
) -> str | None:
    """Try one part; return the sentence about its mistake, or None. Call it in the main thread."""
    custom_function = recipe.custom_functions[setting]
    try:
        with _time_limit(timeout_seconds):
            _TRIALS[setting](custom_function, recipe)
    except OutOfTimeError:
        return (
            f"{setting} {custom_function.function}: had not returned after {timeout_seconds:g} s "
            "on a small made-up record; a run calls it often, so make it fast"
        )
    except UserError as error:
        return str(error)
    return None


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    previous_handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def _try_loss(custom_function: CustomFunction, recipe: Recipe) -> None:
    import torch

    from rollcast.recipe.losses.loss import LossInputs, objective
    from rollcast.recipe.losses.python import make

    assert isinstance(custom_function, CustomLoss)
    loss = make(custom_function)
    logprobs = torch.tensor([-0.5, -1.0, -2.0, -0.1, -3.0, -9.0], requires_grad=True)
    inputs = LossInputs(
        logprobs=logprobs,
        generator_logprobs=torch.tensor([-0.6, -1.0, -1.5, -0.2, -2.5, 0.0]),
        advantages=torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0]),
        weights=torch.tensor([0.5, 0.5, 0.5, 0.5, 0.5, 0.0]),
        rollout=torch.tensor([0, 0, 0, 1, 1, 1]),
    )
    total, _ = objective(loss, inputs)
    if not torch.isfinite(total):
        raise loss.function.make_result_error(
            f"terms that add up to {total.item()}", "finite terms"
        )
    total.backward()  # type: ignore[no-untyped-call]
    gradient = logprobs.grad
    if gradient is None or not torch.isfinite(gradient).all():
        raise loss.function.make_result_error(
            "terms whose gradient is not finite", "a finite gradient"
        )
    if not gradient.any():
        raise loss.function.make_result_error(
            "terms whose gradient is 0", "terms computed from inputs.logprobs"
        )


def _try_advantage(custom_function: CustomFunction, recipe: Recipe) -> None:
    rewards = np.array([1.0, 0.0, 1.0, 0.5, 0.0])
    group = np.array([0, 0, 0, 1, 1])
    loss_tokens = np.array([3, 5, 2, 4, 1])
    custom_advantages(custom_function, BatchRecord(rewards, group, loss_tokens))
    if not recipe.zero_variance_filter:  # then equal rewards come too, on which 0 / 0 is near
        custom_advantages(custom_function, BatchRecord(np.ones(5), group, loss_tokens))


def _try_filter(custom_function: CustomFunction, recipe: Recipe) -> None:
    custom_filter(custom_function, GroupRecord(np.array([1.0, 0.0, 0.5]), np.array([3, 5, 2])))
    custom_filter(custom_function, GroupRecord(np.array([1.0]), np.array([3])))


def _try_curriculum(custom_function: CustomFunction, recipe: Recipe) -> None:
    custom_weight(
        custom_function, PromptRecord("new", epoch=0, reward=0.0, graded=0, evaluations=0)
    )
    custom_weight(
        custom_function, PromptRecord("old", epoch=2, reward=5.5, graded=16, evaluations=2)
    )


def _try_length_control(custom_function: CustomFunction, recipe: Recipe) -> None:
    token_budget = recipe.max_completion_tokens
    custom_penalty(
        custom_function,
        CompletionRecord(num_tokens=1, max_tokens=token_budget, reward=1.0, truncated=False),
    )
    custom_penalty(
        custom_function,
        CompletionRecord(
            num_tokens=token_budget, max_tokens=token_budget, reward=0.0, truncated=True
        ),
    )


_TRIALS: dict[str, Callable[[CustomFunction, Recipe], None]] = {
    "recipe.loss": _try_loss,
    "recipe.advantage": _try_advantage,
    "recipe.filter": _try_filter,
    "recipe.curriculum": _try_curriculum,
    "recipe.length_control": _try_length_control,
}


def main() -> int:
    recipe = Recipe.model_validate_json(sys.stdin.read())
    answers = sys.stdout

    def answer(**content: str) -> None:
        print(json.dumps(content), file=answers, flush=True)

    with contextlib.redirect_stdout(sys.stderr):
        for setting in recipe.custom_functions:
            answer(tries=setting)
            sentence = find_failure(setting, recipe)
            if sentence is None:
                answer(passed=setting)
            else:
                answer(failed=sentence)
    return 0


if __name__ == "__main__":
    sys.exit(main())
