"""How many tasks a generator may claim."""

from dataclasses import dataclass

from rollcast.config.bounds import MOST_DERIVED_SLOTS
from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.services import Generator
from rollcast.config.tasks import Tasks


@dataclass(frozen=True)
class Slots:
    """How many tasks a generator may claim."""

    total: int
    """Concurrent rollouts."""
    train_rollouts: int
    """G of a training task."""
    eval_rollouts: int
    """G of an evaluation task."""
    max_eval_share: float
    """Largest share of the slots for evaluation while training prompts wait."""
    episode_kv_tokens: int | None = None
    """Tokens whose KV the engine's cache holds, for episodes in flight. None = the run has no
    episodes."""

    def __post_init__(self) -> None:
        largest = max(self.train_rollouts, self.eval_rollouts)
        if self.total < largest:
            raise UserError(
                f"generator.slots = {self.total}: fewer than the {largest} rollouts of one prompt; "
                "raise it to at least that"
            )

    def eval_tasks(self, running: int, running_eval: int, *, training_waits: bool) -> int:
        """How many evaluation tasks fit now.

        The share always allows one, else a small share would stop evaluation.
        """
        room = self.total - running
        if training_waits:
            share = max(self.total * self.max_eval_share, self.eval_rollouts)
            room = min(room, int(share) - running_eval)
        return self._tasks(room, self.eval_rollouts)

    def train_tasks(self, running: int) -> int:
        return self._tasks(self.total - running, self.train_rollouts)

    def may_begin(self, in_flight: int, kv_tokens: int) -> bool:
        """Whether the KV cache has room for more rollouts: the first that fill the slots always may
        begin.

        `kv_tokens`: what the episodes in flight want kept.
        """
        is_full = self.episode_kv_tokens is not None and kv_tokens >= self.episode_kv_tokens
        return not is_full or in_flight < self.total

    def _tasks(self, room: int, rollouts: int) -> int:
        """Episodes may wait for their slot, so that one free slot is enough for a task."""
        waiting = 0 if self.episode_kv_tokens is None else rollouts - 1
        return max((room + waiting) // rollouts, 0)


def claimable(generator: Generator, recipe: Recipe, tasks: Tasks, full_rollouts: int) -> Slots:
    """The slots that the run file gives, or that the KV cache has room for.

    `full_rollouts`: rollouts of model.max_length in the KV cache. Raises UserError if a prompt
    needs more.
    """
    largest = max(recipe.most_rollouts_per_prompt, tasks.most_evaluation_rollouts)
    # At least the rollouts of one prompt, because a task is claimed as a whole.
    derived = max(largest, min(full_rollouts, MOST_DERIVED_SLOTS))
    # Half: a long evaluation slows training down and does not stop it, nor the reverse
    return Slots(
        total=derived if generator.slots is None else generator.slots,
        train_rollouts=recipe.most_rollouts_per_prompt,
        eval_rollouts=tasks.most_evaluation_rollouts,
        max_eval_share=0.5,
    )
