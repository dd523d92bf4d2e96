"""The table of docs/models.md says how many ranks FSDP alone needs: as many as the plan says, and
not one less.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.published_models import LLAMA4_SCOUT, MIXTRAL_8X7B, QWEN3_8B, QWEN3_30B_A3B, QWEN3_32B
from tests.memory.plans import plan_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
MODELS = {
    "Qwen3-8B": QWEN3_8B,
    "Qwen3-32B": QWEN3_32B,
    "Qwen3-30B-A3B": QWEN3_30B_A3B,
    "Mixtral 8x7B": MIXTRAL_8X7B,
    "Llama 4 Scout (text)": LLAMA4_SCOUT,
}
LENGTHS = (16, 32, 64, 128)
"""Thousands of tokens, of the columns for 80 GB."""
PROMPT = 2048
MOST_RANKS = 128


def cells() -> Iterator[tuple[str, int, int, int | None]]:
    """Model, GB, thousands of tokens, fewest ranks."""
    for line in DOCUMENT.read_text().splitlines():
        name, *columns = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if name not in MODELS or len(columns) < len(LENGTHS):
            continue
        for length, cell in zip(LENGTHS, columns, strict=False):
            yield name, 80, length, None if cell == "none" else int(cell)
        for gigabytes, ranks in re.findall(r"(\d+) GB: (\d+)", " ".join(columns[len(LENGTHS) :])):
            yield name, int(gigabytes), LENGTHS[0], int(ranks)


def fits(name: str, gigabytes: int, length: int, ranks: int) -> bool:
    tokens = length << 10
    recipe = {"max_prompt_tokens": PROMPT, "max_completion_tokens": tokens - PROMPT}
    trainer: dict[str, Any] = {"activation_checkpointing": True, "tokens_per_micro_batch": tokens}
    plan = plan_of(
        MODELS[name],
        gpu=gigabytes,
        ranks=ranks,
        model={"max_length": tokens},
        recipe=recipe,
        trainer=trainer,
    )
    return plan.trainer[0].fullest.total <= plan.device.num_bytes


def test_every_model_is_found() -> None:
    assert {name for name, *_ in cells()} == set(MODELS)


@pytest.mark.parametrize(("name", "gigabytes", "length", "ranks"), list(cells()))
def test_the_fewest_ranks_are_those_of_the_plan(
    name: str, gigabytes: int, length: int, ranks: int | None
) -> None:
    assert not fits(name, gigabytes, length, MOST_RANKS if ranks is None else ranks - 1)
    assert ranks is None or fits(name, gigabytes, length, ranks)
