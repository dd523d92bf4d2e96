"""Settings of the model that is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings


class Model(Settings):
    path: str
    """Folder of a Hugging Face causal LM, or its name on the hub."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the generators' weights and the trainer's forward pass; master weights are float32 always."""
    max_length: Annotated[int, Field(ge=8)] = 16_384
    """Prompt and completion together, in tokens (A.3). Left out, `rollcast up` takes the model's own where that is less."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off: it is somebody else's code."""
