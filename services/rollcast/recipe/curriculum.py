"""Curriculum: the order of the prompts (arXiv 2510.13786, section 3.2, no-positive-resampling).

Epoch e is a permutation of all prompts, seeded by (seed, e). With `remove_at`, a prompt whose pass
rate over every evaluation in training so far reaches that value is removed for good and skipped in
later epochs. For removal alone a failed grading counts as wrong: the graded right answers may not
be representative. `remove_at` None is uniform sampling. A pass rate is the mean reward, in [0, 1],
of the graded rollouts. Equal calls give equal draws, on every machine.

    draw() --> task dispatched --> group used or filtered --> observe(...)
      ^                                                           |
      +------------------ later epochs, unless removed -----------+

After a restart: restore(state of the checkpoint). Tasks dispatched after that checkpoint are taken
back by the caller, because their draws come again; those dispatched before it are kept with the
checkpoint and dispatched again if they were lost. So no prompt is lost or repeated.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.recipe.custom_functions import PromptRecord, custom_weight


class CurriculumState(TypedDict):
    """The curriculum's part of a checkpoint; plain JSON values."""

    prompts: str
    """SHA-256 of the prompt ids in order."""
    seed: int
    epoch: int
    position: int
    """Prompts of the epoch's permutation that were drawn or passed over."""
    history: dict[str, Annotated[list[float], Field(max_length=4)]]
    """Prompt id -> [sum of the rewards, graded rollouts, evaluations, sampled rollouts]. Older ones
    lack the last, and have the number of rewards above 0 for their sum."""
    removed: list[str]


@dataclass(slots=True)
class PromptHistory:
    """All evaluations of one prompt in training."""

    reward: float = 0.0
    """Sum over the graded rollouts."""
    graded: int = 0
    evaluations: int = 0
    sampled: int = 0
    """Rollouts, graded or not."""


class Curriculum:
    """An endless, resumable sequence of prompt ids."""

    def __init__(
        self,
        prompt_ids: Sequence[str],
        *,
        seed: int,
        remove_at: float | None = 0.9,
        custom_function: CustomFunction | None = None,
    ) -> None:
        """`custom_function`: gives the probability with which a prompt is drawn at its turn.

        None = 1.
        """
        if len(set(prompt_ids)) != len(prompt_ids):
            repeated = next(
                prompt_id for prompt_id, count in Counter(prompt_ids).items() if count > 1
            )
            raise UserError(
                f"prompt id {repeated!r} occurs more than once in the training data; make the ids "
                "unique"
            )
        if not prompt_ids:
            raise UserError("the training data holds no prompt; check the data set and its filters")
        self._prompt_ids = list(prompt_ids)
        self._fingerprint = hashlib.sha256("\0".join(prompt_ids).encode()).hexdigest()
        self._seed = seed
        self._remove_at = remove_at
        self._custom_function = custom_function
        self._history: dict[str, PromptHistory] = {}
        self._removed: set[str] = set()
        self._start_epoch(0, 0)

    def _start_epoch(self, epoch: int, position: int) -> None:
        self._epoch = epoch
        self._position = position
        self._order = list(self._prompt_ids)
        random.Random(f"curriculum/{self._seed}/{epoch}").shuffle(self._order)

    @property
    def num_removed(self) -> int:
        """Prompts removed for good."""
        return len(self._removed)

    def pass_rate(self, prompt_id: str) -> float | None:
        """Return the mean reward of all graded rollouts of the prompt; None before the first."""
        reward, graded = self.counts(prompt_id)
        return reward / graded if graded else None

    @property
    def is_exhausted(self) -> bool:
        """Every prompt is removed."""
        return len(self._removed) == len(self._prompt_ids)

    def counts(self, prompt_id: str) -> tuple[float, int]:
        """Return (sum of the rewards, number) of the graded rollouts of the prompt in training so
        far.
        """
        history = self._history.get(prompt_id)
        return (history.reward, history.graded) if history else (0.0, 0)

    def draw(self) -> str | None:
        """Return the next prompt id, or None when every prompt is removed.

        Raises UserError if the weights of a whole pass over the prompts, which drew none, add up to
        nearly 0.
        """
        unwanted: list[float] = []
        while not self.is_exhausted:
            if self._position == len(self._order):
                self._start_epoch(self._epoch + 1, 0)
            prompt_id = self._order[self._position]
            self._position += 1
            if prompt_id in self._removed:
                continue
            if self._custom_function is None:
                return prompt_id
            weight = self._weight(self._custom_function, prompt_id)
            # Numbers of its own for each prompt and epoch, so that a resumed run draws the same.
            if random.Random(f"own/{self._seed}/{self._epoch}/{prompt_id}").random() < weight:
                return prompt_id
            unwanted.append(weight)
            if len(unwanted) >= len(self._prompt_ids) - len(self._removed):
                self._check_weights(self._custom_function, unwanted)
                unwanted.clear()
        return None

    def _check_weights(self, custom_function: CustomFunction, weights: list[float]) -> None:
        """Raises UserError if a pass with these weights is not expected to draw a prompt."""
        # Prompts that a pass over all of them is expected to draw, the sum of their weights, at
        # least. With fewer the trainer would go over its prompts more than 100 times for one of
        # them.
        least_draws_per_pass = 0.01
        if math.fsum(weights) < least_draws_per_pass:
            raise UserError(
                f"recipe.curriculum {custom_function.function}: gives the last {len(weights)} "
                f"prompts weights of {max(weights):g} at most, so none is drawn; give them "
                f"{least_draws_per_pass:g} or more together"
            )

    def _weight(self, custom_function: CustomFunction, prompt_id: str) -> float:
        past = self._history.get(prompt_id, PromptHistory())
        return custom_weight(
            custom_function,
            PromptRecord(prompt_id, self._epoch, past.reward, past.graded, past.evaluations),
        )

    def observe(self, prompt_id: str, *, reward: float, graded: int, sampled: int) -> None:
        """Record one group: the sum of the rewards of its `graded` among `sampled` rollouts.
        Filtered groups count too.

        Rollouts whose grading failed are sampled but not graded, and do not count in the pass rate.
        For removal they count as wrong, so that a prompt is removed only if no missing verdict
        could change that.

        Removal is permanent: a later, worse evaluation does not bring the prompt back.
        """
        assert 0 <= reward <= graded <= sampled, (reward, graded, sampled)
        history = self._history.setdefault(prompt_id, PromptHistory())
        history.reward += reward
        history.graded += graded
        history.evaluations += 1
        history.sampled += sampled
        sampled = max(
            history.sampled, history.graded
        )  # checkpoints of before do not say how many were sampled
        if (
            self._remove_at is not None
            and history.graded
            # Reward: tolerance of the comparison with `remove_at`. Rewards travel as float32, so
            # sixteen times 0.9 is a little less than 14.4.
            and history.reward >= (self._remove_at - 1e-6) * sampled
        ):
            self._removed.add(prompt_id)

    def state(self) -> CurriculumState:
        """Return the curriculum's part of a checkpoint."""
        return {
            "prompts": self._fingerprint,
            "seed": self._seed,
            "epoch": self._epoch,
            "position": self._position,
            "history": {
                prompt_id: [history.reward, history.graded, history.evaluations, history.sampled]
                for prompt_id, history in self._history.items()
            },
            "removed": sorted(self._removed),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises UserError if it was made with other prompts or another seed.
        """
        if state.get("prompts") != self._fingerprint:
            raise UserError(
                "the training prompts differ from those of the checkpoint; restore the data set or "
                "start a new run"
            )
        if state["seed"] != self._seed:
            raise UserError(
                f"the seed {self._seed} differs from the checkpoint's {state['seed']}; set seed: "
                f"{state['seed']} or start a new run"
            )
        self._history = {
            prompt_id: PromptHistory(*counts) for prompt_id, counts in state["history"].items()
        }
        self._removed = set(state["removed"])
        self._start_epoch(state["epoch"], state["position"])
