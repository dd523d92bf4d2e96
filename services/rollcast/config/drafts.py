"""Speculative decoding: tokens are drafted, and the model verifies several in one step.

The sampled distribution and its log-probs are the model's own, whatever is drafted.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import FolderOrName, Settings
from rollcast.config.errors import UserError


class Drafts(Settings):
    method: Literal["ngram", "draft_model"]
    """`ngram`: tokens that followed an earlier occurrence of the last ones, in prompt or answer.
    `draft_model`: a smaller model of the same vocabulary, which the run does not train."""
    num_speculative_tokens: Annotated[int, Field(ge=1, le=128)]
    """Tokens drafted at a time; vLLM verifies 128 at most."""
    model: FolderOrName | None = None
    """Folder or name of the model that drafts; its weights are read from there."""
    prompt_lookup_min: Annotated[int, Field(ge=1)] | None = None
    """Fewest last tokens that must have come before. None = as prompt_lookup_max."""
    prompt_lookup_max: Annotated[int, Field(ge=1)] | None = None
    """Most last tokens that are looked for. None = 5, or as prompt_lookup_min."""


def check_gpu_drafts(drafts: Drafts | None) -> None:
    """Raise UserError: no GPU has verified drafts so far."""
    if drafts is not None:
        raise UserError(
            "generator.engine.speculative_config: exact on a CPU, and not validated on a GPU so "
            "far; remove it (`python -m benchmarks.gpu speculation` validates it)"
        )
