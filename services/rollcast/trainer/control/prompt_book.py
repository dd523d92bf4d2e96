"""Tokenised prompts by id, and the tasks made of them."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollcast.config.errors import UserError
from rollcast.config.recipe import Interruption, Recipe
from rollcast.config.tasks import PromptFormat
from rollcast.environments.episode_tasks import make_episode_task
from rollcast.recipe.mixture import Share
from rollcast.rollouts.records import LengthBudget, PromptTask, Purpose, Sampling
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.tokens import TokenizedPrompt, Tokenizer, tokenize_prompts

Encode = Callable[[str], Sequence[int]]
"""Bare text to token ids, without a template or special tokens."""


class PromptBook(dict[str, TokenizedPrompt]):
    """Usable prompts of a split by id, in the data set's order.

    Those that are too long are skipped and counted.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        tokenizer: Tokenizer,
        *,
        max_prompt_tokens: int,
        prompt_format: PromptFormat | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        usable, self.skipped_too_long = tokenize_prompts(
            tokenizer, prompts, max_prompt_tokens, prompt_format
        )
        super().__init__({item.prompt.id: item for item in usable})
        if not self:
            raise UserError(
                f"recipe.max_prompt_tokens = {max_prompt_tokens}: every one of the {len(prompts)} "
                "prompts is longer or empty; raise it or check the data set"
            )
        lengths = sorted(len(item.token_ids) for item in self.values())
        self._decile_bounds = [
            lengths[min(len(lengths) - 1, len(lengths) * i // 10)] for i in range(1, 10)
        ]

    def text(self, token_ids: Sequence[int]) -> str:
        """Text that a model read or wrote, special tokens included."""
        return self._tokenizer.decode(token_ids)

    def length_decile(self, prompt_id: str) -> int:
        """0..9 by the prompt's length, known at dispatch: metrics by decile show what happens to
        long prompts.
        """
        return bisect_right(self._decile_bounds, len(self[prompt_id].token_ids))


@dataclass(slots=True)
class Books:
    train: PromptBook
    held_out: PromptBook
    downstream: dict[str, PromptBook] = field(default_factory=dict)
    """By the label of their evaluations."""


def shares(book: PromptBook, weights: Mapping[str, float]) -> list[Share]:
    """The prompts of each part of a mixture.

    `weights`: of the parts by their names; empty = one data set.
    """
    if not weights:
        return [Share("", list(book), 1.0)]
    of_part: dict[str, list[str]] = {name: [] for name in weights}
    for prompt_id, item in book.items():
        of_part[item.prompt.dataset].append(prompt_id)
    return [Share(name, of_part[name], weight) for name, weight in weights.items()]


class TaskMaker:
    def __init__(
        self,
        recipe: Recipe,
        encode: Encode,
        prompt_format: PromptFormat | None = None,
        *,
        incarnation: int,
        seed: int,
    ) -> None:
        """`prompt_format`: its system message begins episodes whose prompts lack one.

        None = no message.
        """
        self._recipe = recipe
        self._system = None if prompt_format is None else prompt_format.system
        self._incarnation = incarnation
        self._length = length_budget(recipe, encode, seed)

    def make(
        self,
        sequence: int,
        item: TokenizedPrompt,
        num_rollouts: int,
        purpose: Purpose,
        eval_step: int = 0,
    ) -> PromptTask:
        return PromptTask(
            sequence=sequence,
            incarnation=self._incarnation,
            purpose=purpose,
            dataset=item.prompt.dataset,
            prompt_id=item.prompt.id,
            prompt_token_ids=np.asarray(item.token_ids, dtype=np.int32),
            num_rollouts=num_rollouts,
            sampling=Sampling(temperature=self._recipe.temperature),
            length=self._length,
            verifier=item.prompt.verifier,
            reference=item.prompt.reference,
            eval_step=eval_step,
            episode=(
                make_episode_task(item.prompt, self._system, self._recipe.episodes)
                if item.prompt.environment
                else None
            ),
        )


def length_budget(recipe: Recipe, encode: Encode, seed: int) -> LengthBudget:
    """The budgets that every task carries.

    Raises UserError if a rollout whose thinking is cut at the last position has no room for the
    phrase and a whole answer behind it. Only the tokenizer knows how many tokens the phrase takes.
    """
    control = recipe.length_control
    if not isinstance(control, Interruption):
        return LengthBudget(max_tokens=recipe.max_completion_tokens)
    phrase = tuple(encode(control.phrase))
    needed = control.position[1] + len(phrase) + control.answer_tokens
    if needed > recipe.max_completion_tokens:
        raise UserError(
            f"recipe.max_completion_tokens = {recipe.max_completion_tokens}: length_control's last "
            f"position {control.position[1]}, the {len(phrase)} tokens of its phrase and "
            f"answer_tokens {control.answer_tokens} take {needed}; raise it to that, or lower "
            "position or answer_tokens"
        )
    return LengthBudget(
        max_tokens=recipe.max_completion_tokens,
        interrupt_from=control.position[0],
        interrupt_to=control.position[1],
        answer_tokens=control.answer_tokens,
        phrase=phrase,
        end_of_thinking=tuple(encode(control.end_of_thinking)),
        seed=seed,
    )
