"""Settings of the model that is trained."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rollcast.config.base import FolderOrName, Settings
from rollcast.config.errors import UserError
from rollcast.config.lora import Lora

Renderer = Literal[
    "auto",
    "deepseek-r1", "deepseek-v3", "deepseek-v4", "gemma4", "glm-4.5", "glm-5", "glm-5.1", "glm-5.3",
    "gpt-oss", "hy3",
    "inkling", "kimi-k2", "kimi-k2.5", "laguna-m.1", "laguna-s-2.1", "laguna-xs-2.1", "laguna-xs.2",
    "llama-3",
    "minimax-m2", "nemotron-3", "nemotron-3-ultra", "nemotron-3.5", "prime-qwen3", "qwen3",
    "qwen3-vl", "qwen3.5",
    "qwen3.6", "qwen3.8",
]  # fmt: skip
"""Names of the package `renderers`, which not every machine that checks a run file has. A test
compares the two."""
TEXT_MODELS = {
    "llama4": "Llama4ForCausalLM",
    "qwen3_5": "Qwen3_5ForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "mistral3": "MistralForCausalLM",
}
"""Kinds that take more than text, of which the text model alone is trained and served: the
architecture of that, which Transformers and vLLM name alike. It is read from the whole model's
files, and an export has all of them."""

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check_folder(path: str, field: str = "model.path") -> None:
    """Raises UserError for a folder that is not there, for which libraries would ask the hub by an
    impossible name.
    """
    if not _HUB_NAME.fullmatch(path) and not Path(path).exists():
        raise UserError(
            f"{field} = {path!r}: there is no such folder on this machine; put or mount the "
            "model there, or give another folder or a name on the hub"
        )


def text_part(config: Any) -> Any:
    """The Hugging Face config of the text model in one of TEXT_MODELS, as if that were stored
    alone.
    """
    text = config.get_text_config()
    text.architectures = [TEXT_MODELS[config.model_type]]
    text.tie_word_embeddings = text.tie_word_embeddings or config.tie_word_embeddings
    return text


class Model(Settings):
    path: FolderOrName
    """Folder of a Hugging Face causal LM, or its name on the hub."""
    from_run: FolderOrName | None = None
    """Folder of another run of Rollcast, or the folder or URL of its checkpoints: this run begins
    with the weights of the newest whole one. Everything else is new, compute counts from 0, and
    what that run spent is stated apart. `path` is a model of the same shape, whose tokenizer and
    config are used. None = begin with the weights of `path`."""
    from_step: Annotated[int, Field(ge=0)] | None = None
    """Step of the kept checkpoint of `from_run` to begin with, such as the last one before the peak
    of a run that broke. None = the newest whole one."""
    spent_device_hours: Annotated[float, Field(ge=0)] | None = None
    """Device-hours that went into `path` before this run, supervised fine-tuning say. Reported with
    the curve, never part of it. None = not known."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Type of the generators' weights and the trainer's forward pass; master weights are float32
    always."""
    lora: Lora | None = None
    """Train adapters instead of every weight. None = every weight is trained."""
    max_length: Annotated[int, Field(ge=8)] = 16_384
    """Prompt and completion together, in tokens (A.3). Left out, `rollcast up` takes the model's
    own limit if that is less."""
    renderer: Renderer = "auto"
    """Converter of chats to tokens and back for episodes: a renderer of the package `renderers` by
    its name, such as `qwen3`. `auto`: the one that knows the model's chat template, or a bridge of
    Rollcast's own, proven at the start."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off, because it is code of a third party."""
