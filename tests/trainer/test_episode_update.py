"""Whole updates on episodes, with splits, given tokens and a failed environment, against a loop
over every token.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from rollcast.config.episodes import Episodes, TurnCredit
from rollcast.config.recipe import Recipe
from rollcast.recipe.losses.make import make_loss
from rollcast.rollouts.records import Branch, EpisodeEnd, Rollout, RolloutGroup
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.learner.batch import denominator
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.model import shard_policy
from rollcast.trainer.learner.ranks import Ranks
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import make_answer_group, make_task
from tests.trainer.tiny_models import VOCAB, make_config

DISCOUNT = 0.5
RATIO_MAX = 5.0
SHAPES = [(1,), (3,), (2, 1), (1, 1, 2)]


def make_groups() -> list[RolloutGroup]:
    """Two groups of four episodes of 1 to 4 turns and one whose environment failed."""
    rng = np.random.default_rng(1)
    groups = []
    for sequence in range(2):
        rollouts = [
            make_episode(
                rng,
                index,
                turns=shape,
                reward=float((index + sequence) % 2),
                vocab=VOCAB,
                has_trailing=True,
            )
            for index, shape in enumerate(SHAPES)
        ]
        rollouts.append(
            make_episode(rng, len(SHAPES), turns=(2,), vocab=VOCAB, end=EpisodeEnd.FAILED)
        )
        groups.append(
            make_answer_group(
                make_task(sequence, num_rollouts=len(rollouts), episode=EPISODE_TASK), rollouts
            )
        )
    return groups


def rows_of(model: nn.Module, prompt: Any, sequence: Rollout | Branch) -> Tensor:
    """[P + L, V] log-probs of the whole sequence, the given tokens at its end included."""
    ids = torch.tensor([[*prompt.tolist(), *sequence.token_ids.tolist()]])
    return torch.log_softmax(model(input_ids=ids).logits[0].double(), 1)


def slow_advantages(group: RolloutGroup, *, by_turns: bool) -> dict[tuple[int, int], float]:
    """Of each turn, by rollout and turn; advantages are centred and divided by nothing."""
    graded = [rollout for rollout in group.rollouts if rollout.has_verdict]
    returns: dict[int, list[float]] = {}
    for rollout in graded:
        assert rollout.episode is not None
        rewards = [turn.reward if by_turns else 0.0 for turn in rollout.episode.turns]
        discount = DISCOUNT if by_turns else 1.0
        last = len(rewards) - 1
        returns[rollout.index] = [
            sum(discount ** (n - m) * rewards[n] for n in range(m, last + 1))
            + discount ** (last - m) * rollout.reward
            for m in range(last + 1)
        ]
    baseline = sum(sum(values) / len(values) for values in returns.values()) / len(returns)
    return {
        (index, m): value - baseline
        for index, values in returns.items()
        for m, value in enumerate(values)
    }


def slow_loss(model: nn.Module, groups: list[RolloutGroup], *, by_turns: bool) -> Tensor:
    """-J with CISPO: the mean over prompts of the mean over the sampled tokens of their episodes
    with a verdict.
    """
    objective = torch.zeros((), dtype=torch.float64)
    for group in groups:
        advantages = slow_advantages(group, by_turns=by_turns)
        terms = []
        for rollout in group.rollouts:
            assert rollout.episode is not None
            if not rollout.has_verdict:
                continue
            for m, turn in enumerate(rollout.episode.turns):
                sequence = rollout.sequences[turn.sequence]
                prompt = rollout.sequence_prompt(sequence, group.prompt_token_ids)
                rows = rows_of(model, prompt, sequence)
                for position in range(turn.start, turn.end):
                    logprob = rows[len(prompt) - 1 + position, int(sequence.token_ids[position])]
                    ratio = min(
                        math.exp(logprob.item() - float(sequence.logprobs[position])), RATIO_MAX
                    )
                    terms.append(ratio * advantages[rollout.index, m] * logprob)
        objective = objective + torch.stack(terms).mean()
    return -objective / len(groups)


@pytest.mark.parametrize("by_turns", [False, True], ids=["episode", "turn"])
def test_an_update_equals_a_slow_float64_loop(
    ranks: Ranks, model: Path, tmp_path: Path, by_turns: bool
) -> None:
    config = make_config(model, tmp_path)
    policy = shard_policy(
        transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64),
        mesh=ranks.mesh,
        dtype=torch.float64,
        lm_head="fp32",
        temperature=1.0,
        logits_chunk_tokens=7,
        activation_checkpointing=False,
    )
    settings = config.recipe.optimizer.model_copy(update={"max_grad_norm": 1e9})
    learner = Learner(
        policy, optimizer_settings=settings, loss=make_loss(config.recipe.loss), ranks=ranks
    )
    credit = TurnCredit(discount=DISCOUNT) if by_turns else Episodes().credit
    recipe = Recipe(advantage_normalisation="none", episodes=Episodes(credit=credit))
    groups = make_groups()
    sequences = assemble(groups, recipe).sequences
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    loss = slow_loss(plain, groups, by_turns=by_turns)
    loss.backward()
    stats = learner.update([tuple(sequences[:4]), tuple(sequences[4:])], denominator(sequences))
    tolerance = 1e-6 if by_turns else 1e-9  # advantages of tokens travel as float32
    assert stats.loss == pytest.approx(loss.item(), rel=tolerance)
    gradients = dict(plain.named_parameters())
    beta = learner.optimizer_settings.betas[0]
    for name, weight in learner.policy.named_weights():
        moment = learner.optimizer.state[weight]["exp_avg"].full_tensor() / (1 - beta)
        torch.testing.assert_close(
            moment, gradients[name].grad, rtol=100 * tolerance, atol=10 * tolerance
        )
