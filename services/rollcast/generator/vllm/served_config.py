"""The model's config for vLLM."""

from typing import Any

from rollcast.config.model import TEXT_MODELS


def served_config(config: Any, *, wide_head: bool) -> Any:
    """vLLM's `hf_overrides`; for a model of TEXT_MODELS the config of its text part.

    vLLM would serve the whole model, but the trainer has weights of its text part only. wide_head: products of the head
    are float32.
    """
    if config.model_type in TEXT_MODELS:
        architecture = TEXT_MODELS[config.model_type]
        config = config.get_text_config()
        config.architectures = [architecture]
    if wide_head:
        config.head_dtype = "float32"
    return config
