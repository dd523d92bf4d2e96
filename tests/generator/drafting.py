"""Runs with drafts, and models whose texts are long enough for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.config.engine_arguments import EngineArguments
from rollcast.config.run import RunConfig
from testkit.tiny_model import make_architecture

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 3,
    "prompt_lookup_min": 1,
    "prompt_lookup_max": 3,
}
LOW_TEMPERATURE = 0.5
"""At which the models below repeat themselves, so that n-grams are accepted. Rounding of a logit is
divided by it."""


def with_drafts(
    config: RunConfig, drafts: dict[str, Any], *, tensor_parallel: int = 1
) -> RunConfig:
    engine = EngineArguments.model_validate({"speculative_config": drafts})
    generator = config.generator.model_copy(
        update={"engine": engine, "tensor_parallel": tensor_parallel}
    )
    return config.model_copy(update={"generator": generator})


def make_long_texts(folder: Path, architecture: str) -> None:
    """Write a model of this architecture that rarely ends its text at LOW_TEMPERATURE: the logit of
    the end is 0 in every version.
    """
    from safetensors.torch import load_file, save_file

    make_architecture(folder, architecture, max_length=512)
    path = folder / "model.safetensors"
    weights = load_file(path)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    end_of_text = 2
    head[end_of_text] = 0.0
    save_file(weights, path, metadata={"format": "pt"})
