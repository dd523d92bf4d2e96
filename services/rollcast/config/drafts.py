"""Speculative decoding: who drafts the tokens that the model verifies, several in one step.

The sampled distribution and its log-probs are the model's own, whatever is drafted.
"""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import FolderOrName, Settings
from rollcast.config.errors import UserError


class Drafts(Settings):
    num_speculative_tokens: Annotated[int, Field(ge=1, le=128)]
    """Tokens drafted at a time; vLLM verifies 128 at most."""


class NgramDrafts(Drafts):
    method: Literal["ngram"]
    """What followed the last tokens where they came before, in the prompt or in the answer."""
    prompt_lookup_min: Annotated[int, Field(ge=1)] | None = None
    """Fewest last tokens that must have come before. None = as prompt_lookup_max."""
    prompt_lookup_max: Annotated[int, Field(ge=1)] | None = None
    """Most last tokens that are looked for. None = 5, or as prompt_lookup_min."""


class ModelDrafts(Drafts):
    method: Literal["draft_model"]
    """A smaller model of the same vocabulary. The run does not train it."""
    model: FolderOrName
    """Folder or name of the model; its weights are read from there."""


AnyDrafts = Annotated[NgramDrafts | ModelDrafts, Field(discriminator="method")]


def check_gpu_drafts(drafts: Drafts | None) -> None:
    """Raise UserError: no GPU has verified drafts so far."""
    if drafts is not None:
        raise UserError(
            "generator.engine.speculative_config: exact on a CPU, and not validated on a GPU so "
            "far; remove it (`python -m benchmarks.gpu speculation` validates it)"
        )
