"""Whether the log-probs of a trainer's learner and a generator's engine agree, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from rollcast.config.run import RunConfig
from rollcast.memory.check import plan_run
from rollcast.memory.device import GB, Device
from rollcast.trainer.learner.batch import TrainingSequence
from tests.generator.conftest import random_prompt
from tests.generator.live_pair import LivePair, training_sequence

TOLERANCE = 1e-4
UPDATES = 3
PROMPTS, PROMPT_TOKENS, MAX_TOKENS = 24, 40, 100


async def sample(pair: LivePair, max_tokens: int = MAX_TOKENS) -> list[TrainingSequence]:
    """Rollouts of the version that the engine holds, as the learner takes them."""
    prompts = [random_prompt(seed, PROMPT_TOKENS) for seed in range(PROMPTS)]
    sampled = await pair.sample(prompts, max_tokens)
    assert all(
        len(one.spans) == 1 and one.spans[0].version == pair.engine.version for one in sampled
    )
    return [
        training_sequence(prompt, one, advantage=1.0 - 2.0 * (index % 2))
        for index, (prompt, one) in enumerate(zip(prompts, sampled, strict=True))
    ]


def gaps(
    pair: LivePair, sequences: Sequence[TrainingSequence], *, replay: bool = False
) -> NDArray[np.float32]:
    generator = np.concatenate(
        [sequence.generator_logprobs[sequence.loss_mask] for sequence in sequences]
    )
    assert len(generator) > 500
    assert generator.std() > 0.5, "every token equally likely: nothing is compared"
    return np.abs(pair.logprobs(sequences, replay=replay) - generator)


def check_slots(pair: LivePair, config: RunConfig) -> None:
    """The planner's arithmetic against the blocks that the engine has."""
    plan = plan_run(config, Device("cpu", 64 * GB), ranks=1)
    assert plan is not None
    assert pair.engine.full_rollouts == pytest.approx(plan.worker.slots_that_fit, rel=0.01)
