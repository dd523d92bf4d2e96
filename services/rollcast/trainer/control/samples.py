"""What the model wrote at an evaluation, as text that a person reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rollcast.runfolder.records import SampledCompletion, SamplesRecord
from rollcast.trainer.control.evaluation import Closed

MAX_CHARACTERS = 4_000
"""Of a prompt or a completion. A curve of a thousand evaluations stays below 32 MB of them."""


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
    """Beginning and end, with what was left out between them counted."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters ...] {text[-half:]}"
