"""Run as a process: one rank of several. Reads models and writes what the ranks hold together.

python -m tests.trainer.sharded_start RESULTS MODEL...        with torchrun's environment variables
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from tests.trainer.tiny_models import make_config


def held(group: LearnerGroup) -> dict[str, Any]:
    """Whole weights by name, this rank's buffers, and the rows of those that it publishes."""
    return {
        "weights": {
            name: weight.full_tensor().detach()
            for name, weight in group.learner.policy.named_weights()
        },
        "buffers": dict(group.learner.policy.causal_lm.named_buffers()),
        "published": {
            name: rows.to_local() for name, rows in group.learner.policy.published_buffers()
        },
    }


def main() -> None:
    results, *models = sys.argv[1:]
    ranks = join_ranks(timeout_seconds=30, threads=1)
    found: dict[str, Any] = {}
    for model in models:
        try:
            found[model] = held(
                LearnerGroup.build(make_config(Path(model), Path(results).parent), ranks)
            )
        except UserError as error:
            found[model] = str(error)
    torch.save(found, f"{results}.{ranks.rank}")
    ranks.leave()


if __name__ == "__main__":
    main()
