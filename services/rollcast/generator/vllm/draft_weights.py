"""The weights of a model that drafts, which are in files.

The model's own weights come from the trainer (`load_format` dummy). vLLM's model runners load a
draft model in the same way, although it has a `draft_load_config` of its own: its weights would be
random numbers.
"""

import functools
from typing import Any


@functools.cache
def read_weights_of_drafting_model() -> None:
    """Let both model runners load a draft model by its own `draft_load_config`."""
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.model_loader.utils import get_draft_load_config
    from vllm.v1.spec_decode import draft_model
    from vllm.v1.worker.gpu.spec_decode.standalone_ar import speculator

    def get_draft_model(*, vllm_config: Any, prefix: str) -> Any:
        return get_model(
            vllm_config=vllm_config, prefix=prefix, load_config=get_draft_load_config(vllm_config)
        )

    draft_model.get_model = get_draft_model
    speculator.get_model = get_draft_model
