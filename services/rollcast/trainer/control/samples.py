"""Completions of an evaluation as text, for people to read."""

import time
from collections.abc import Callable, Sequence

from rollcast.runfolder.records import SampledCompletion, SamplesRecord
from rollcast.trainer.control.evaluation import Closed

MAX_CHARACTERS = 4_000
"""Length of a prompt or a completion: those of a thousand evaluations stay below 32 MB."""


def sampled(closed: Closed, incarnation: int, text: Callable[[Sequence[int]], str]) -> SamplesRecord:
    """The first completion of each of the evaluation's first prompts. `text` decodes token ids."""
    samples = []
    for group in closed.sampled:
        rollout = group.rollouts[0]
        samples.append(
            SampledCompletion(
                prompt=shortened(text(group.prompt_token_ids.tolist())),
                completion=shortened(text(rollout.token_ids.tolist())),
                reward=rollout.reward,
                status=str(rollout.grading_status),
                num_tokens=rollout.num_tokens,
                truncated=rollout.truncated,
            )
        )
    return SamplesRecord(incarnation, closed.step, closed.dataset, samples, time.time())


def shortened(text: str) -> str:
    """Beginning and end, with the number of characters left out between them."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
