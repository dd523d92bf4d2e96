"""Tensors of a model's safetensors files, of which a rank reads its own slices."""

from dataclasses import dataclass
from typing import Any, Protocol, cast

from safetensors import safe_open
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file
from transformers.utils.hub import get_checkpoint_shard_files


class Slices(Protocol):
    """Methods that Transformers' loader calls on a tensor that it reads."""

    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str:
        """Under safetensors' name, such as F32."""
        ...

    def __getitem__(self, slices: Any) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a safetensors file. Each slice is read on request, and the file is mapped only
    meanwhile.

    Transformers would keep the files mapped until all is read: pages that count as this process's
    memory.
    """

    file: str
    name: str
    shape: list[int]
    dtype: str

    def get_shape(self) -> list[int]:
        return self.shape

    def get_dtype(self) -> str:
        return self.dtype

    def __getitem__(self, slices: Any) -> Tensor:
        with safe_open(self.file, framework="pt") as file:
            return cast(Tensor, file.get_slice(self.name)[slices].clone())


def stored_tensors(path: str) -> dict[str, StoredTensor]:
    """Every tensor of the model's safetensors files, which are fetched from the hub if `path` is a
    name there.
    """
    single_file = cached_file(path, SAFE_WEIGHTS_NAME, _raise_exceptions_for_missing_entries=False)
    index = cached_file(path, SAFE_WEIGHTS_INDEX_NAME, _raise_exceptions_for_missing_entries=False)
    if single_file is None and index is None:
        raise FileNotFoundError(
            f"neither {SAFE_WEIGHTS_NAME} nor {SAFE_WEIGHTS_INDEX_NAME} is there"
        )
    tensors = {}
    for name in (
        [single_file] if single_file is not None else get_checkpoint_shard_files(path, index)[0]
    ):
        with safe_open(name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118  (no mapping)
                tensor = file.get_slice(key)
                tensors[key] = StoredTensor(name, key, tensor.get_shape(), tensor.get_dtype())
    return tensors
