"""Several tasks together: prompts of each part in proportion to its weight, every part with a
curriculum of its own.

The next prompt comes from the part with the smallest (draws so far + 1/2) / weight, which is
Webster's apportionment: after any number of draws the parts' counts are as near to their weights as
whole prompts allow. A part without prompts left is passed over. Equal calls give equal draws;
state() and restore() continue them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.recipe.curriculum import Curriculum, CurriculumState


@dataclass(frozen=True, slots=True)
class Share:
    """One part's prompts and how many of all draws are theirs."""

    name: str
    prompt_ids: Sequence[str]
    weight: float


class MixtureState(TypedDict):
    """The mixture's part of a checkpoint; plain JSON values."""

    weights: dict[str, float]
    """By part, in their order."""
    drawn: list[int]
    """Prompts drawn from each part."""
    parts: list[CurriculumState]


class MixtureCurriculum:
    """An endless, resumable sequence of prompt ids; the interface of Curriculum."""

    def __init__(
        self,
        shares: Sequence[Share],
        *,
        seed: int,
        remove_at: float | None = 0.9,
        custom_function: CustomFunction | None = None,
    ) -> None:
        """`custom_function`: as for Curriculum."""
        for share in shares:
            if not share.prompt_ids:
                raise UserError(
                    f"data set {share.name!r} of the mixture holds no training prompt; check it, "
                    "or remove the part"
                )
        self._weights = {share.name: share.weight for share in shares}
        self._parts = [
            Curriculum(
                share.prompt_ids, seed=seed, remove_at=remove_at, custom_function=custom_function
            )
            for share in shares
        ]
        self._curriculum_by_prompt = {
            name: curriculum
            for share, curriculum in zip(shares, self._parts, strict=True)
            for name in share.prompt_ids
        }
        if len(self._curriculum_by_prompt) < sum(len(share.prompt_ids) for share in shares):
            raise UserError("a prompt id occurs in two parts of the mixture; make the ids unique")
        self._drawn = [0] * len(shares)

    @property
    def num_removed(self) -> int:
        """Prompts removed for good, of all parts."""
        return sum(curriculum.num_removed for curriculum in self._parts)

    @property
    def is_exhausted(self) -> bool:
        """Whether every prompt of every part is removed."""
        return all(curriculum.is_exhausted for curriculum in self._parts)

    def counts(self, prompt_id: str) -> tuple[float, int]:
        """Sum of the rewards and number of the graded rollouts of the prompt so far; zeros before
        the first.
        """
        return self._curriculum_by_prompt[prompt_id].counts(prompt_id)

    def pass_rate(self, prompt_id: str) -> float | None:
        """Return the mean reward of all graded rollouts of the prompt; None before the first."""
        return self._curriculum_by_prompt[prompt_id].pass_rate(prompt_id)

    def draw(self) -> str | None:
        """Return the next prompt id, or None when every prompt is removed."""
        weights = list(self._weights.values())
        open_indices = [
            index for index, curriculum in enumerate(self._parts) if not curriculum.is_exhausted
        ]
        if not open_indices:
            return None
        index = min(open_indices, key=lambda i: (self._drawn[i] + 0.5) / weights[i])
        self._drawn[index] += 1
        return self._parts[index].draw()

    def observe(self, prompt_id: str, *, reward: float, graded: int, sampled: int) -> None:
        """Record one group, as Curriculum.observe does."""
        self._curriculum_by_prompt[prompt_id].observe(
            prompt_id, reward=reward, graded=graded, sampled=sampled
        )

    def state(self) -> MixtureState:
        """Return the mixture's part of a checkpoint."""
        return {
            "weights": dict(self._weights),
            "drawn": list(self._drawn),
            "parts": [curriculum.state() for curriculum in self._parts],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`.

        Raises UserError if it was made with other parts, weights, prompts or another seed.
        """
        if "weights" not in state or list(state["weights"].items()) != list(self._weights.items()):
            raise UserError(
                "tasks.dataset: the parts of the mixture or their weights differ from those of the "
                "checkpoint; restore them or start a new run"
            )
        for curriculum, saved in zip(self._parts, state["parts"], strict=True):
            curriculum.restore(saved)
        self._drawn = list(state["drawn"])


def make_curriculum(
    shares: Sequence[Share],
    *,
    seed: int,
    remove_at: float | None,
    custom_function: CustomFunction | None = None,
) -> Curriculum | MixtureCurriculum:
    """The curriculum of one data set, or of several."""
    if len(shares) == 1:
        return Curriculum(
            shares[0].prompt_ids, seed=seed, remove_at=remove_at, custom_function=custom_function
        )
    return MixtureCurriculum(
        shares, seed=seed, remove_at=remove_at, custom_function=custom_function
    )
