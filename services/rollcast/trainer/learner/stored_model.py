"""The tensors in a model's files: those of the text model, which is trained, and the rest.

    model.language_model.layers.0.NAME   Qwen3.5, Gemma 3     -> model.layers.0.NAME
    language_model.model.layers.0.NAME   Llama 4, Mistral 3   -> model.layers.0.NAME
    model.visual.NAME, mtp.NAME          the rest

The rest is what takes images, and what predicts further tokens. It is never read for training. An
export copies it, so that it has the form in which the model was published.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from safetensors import safe_open
from torch import Tensor

from rollcast.trainer.learner.stored_tensors import Slices, StoredTensor, stored_tensors

TEXT_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
"""Beginnings of the text model's names in the files of a model that takes more than text, and in
its own."""
HEAD = "lm_head."
"""Beginning of the head's name in both, if the whole model has it outside of its text model."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """All tensors of a model's files."""

    text: Mapping[str, StoredTensor]
    """By their names in files of the text model alone."""
    rest: Mapping[str, StoredTensor]
    """By their names in the files."""

    def published_name(self, name: str) -> str:
        """The name in the files of a tensor of the text model.

        As it is, if no file has this name.
        """
        return self.text[name].name if name in self.text else name


def stored_model(path: str, causal_lm: Any) -> StoredModel:
    """The files are fetched from the hub if `path` is a name there. `causal_lm`: the text model."""
    return split_text_tensors(
        stored_tensors(path), causal_lm._keys_to_ignore_on_load_unexpected or ()
    )


def split_text_tensors(tensors: Mapping[str, StoredTensor], ignored: Iterable[str]) -> StoredModel:
    """`ignored`: patterns of names that Transformers' text model leaves unread."""
    is_whole = any(name.startswith(tuple(TEXT_PREFIXES)) for name in tensors)
    patterns = [re.compile(pattern) for pattern in ignored]
    text: dict[str, StoredTensor] = {}
    rest: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        text_name = _text_name(name) if is_whole else name
        if text_name is None or any(pattern.search(name) for pattern in patterns):
            rest[name] = tensor
        else:
            text[text_name] = tensor
    return StoredModel(text, rest)


def _text_name(stored: str) -> str | None:
    """None: it is no part of the text model."""
    for prefix, text_prefix in TEXT_PREFIXES.items():
        if stored.startswith(prefix):
            return text_prefix + stored.removeprefix(prefix)
    return stored if stored.startswith(HEAD) else None


def read_whole(tensor: Slices) -> Tensor:
    if not isinstance(tensor, StoredTensor):
        return tensor[...]
    with safe_open(tensor.file, framework="pt") as file:  # a tensor of no dimensions has no slices
        return cast(Tensor, file.get_tensor(tensor.name).clone())
