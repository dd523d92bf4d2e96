"""Export: a folder that `from_pretrained` reads and servers serve.

Weights in the model's dtype and buffers in their own, under the names of the model's files, in
files of a bounded size. What of a model is not trained (see `stored_model`) is copied: as it is, or
in the model's dtype if the source has it in fewer bits. So is every other file: config, generation
config, tokenizer, chat templates, code. All ranks walk through the weights together. One at a time
is gathered, and rank 0 writes a file as soon as it is full.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import cast

import torch
from huggingface_hub import snapshot_download, split_torch_state_dict_into_shards
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import refused_by_the_world
from rollcast.config.model import Model
from rollcast.memory.host import EXPORT_FILE_BYTES
from rollcast.trainer.learner.architecture import whole_config
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.quantised_files import dequantise
from rollcast.trainer.learner.stored_model import StoredModel, read_whole, stored_model
from rollcast.trainer.learner.stored_tensors import Slices, StoredTensor

WEIGHTS = (
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.index.json",
)
"""Files of the source that are not copied: other weights than those exported."""
FOLDERS = ("additional_chat_templates",)
"""Folders of the source that belong to the model; others are checkpoints of other programs."""
TOKENIZER = (
    *(
        "tokenizer*",
        "tokenization_*.py",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.*",
        "merges.txt",
    ),
    *(
        "*.tiktoken",
        "spiece.model",
        "sentencepiece*.model",
        "chat_template.*",
        *(f"{name}/*" for name in FOLDERS),
    ),
)
"""Files of the source with which texts and chats become tokens."""
CUSTOM_FUNCTIONS = "rollcast_own_parts.json"
"""Function and digest of each part of the recipe that was the user's own, by its setting."""
OS_ERROR = re.compile(r"os error (\d+)")


@dataclass(eq=False)
class Export:
    """Writes at rank 0; every rank takes part.

    An export is there whole or not at all, and replaces an earlier one.
    """

    policy: Policy
    settings: Model
    folder: Path
    _: KW_ONLY
    custom_functions: Mapping[str, CustomFunction] = field(default_factory=dict)
    """By the setting of each; the file `CUSTOM_FUNCTIONS` names them. Empty = no such file."""
    file_bytes: int = EXPORT_FILE_BYTES

    def __post_init__(self) -> None:
        self._partial = self.folder.with_name(f".partial-{self.folder.name}")
        self._dtype = getattr(torch, self.settings.dtype)

    def take_part(self) -> None:
        """Ranks above 0: contribute to the weights that rank 0 gathers."""
        for _ in self._gather_weights():
            pass

    def write(self) -> None:
        """Rank 0.

        Raises UserError if the folder cannot be written; the others have done their part by then.
        """
        gathered = self._gather_weights()
        try:
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir(parents=True)
            self._write_weights(gathered)
            self._write_others()
            self._write_custom_functions()
            _let_the_umask_decide(self._partial)
            shutil.rmtree(self.folder, ignore_errors=True)
            self._partial.rename(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(self._partial, ignore_errors=True)
            # The other ranks go on in the same collectives, and would hang without this one.
            for _ in gathered:
                pass
            refusal = _disk_error(error)
            raise refused_by_the_world(
                refusal,
                f"export folder {self.folder} cannot be written ({refusal.strerror or refusal}); "
                "free space or choose another",
            ) from error

    def _gather_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Each weight under Transformers' name, in the model's dtype on the host; one weight at a
        time.
        """
        for name, weight in self.policy.trained_weights():
            # Narrowed on each rank, so that fewer bytes are gathered.
            narrow = cast(DTensor, weight.detach().to(self._dtype))
            yield name, narrow.full_tensor().cpu()
        for name, buffer in self.policy.stored_buffers():
            yield name, buffer.cpu()

    def _stored_tensors(
        self, name: str, full_weight: Tensor, source: StoredModel
    ) -> dict[str, Tensor]:
        """The form in which the source's files have a weight, such as experts in a stack or one by
        one.
        """
        from transformers.core_model_loading import revert_weight_conversion

        if name in source.text:
            stored = {name: full_weight}
        else:
            stored = revert_weight_conversion(self.policy.causal_lm, {name: full_weight})
        return {
            source.published_name(key): stored_tensor.contiguous()
            for key, stored_tensor in stored.items()
        }

    def _write_weights(self, gathered: Iterator[tuple[str, Tensor]]) -> None:
        source = stored_model(self.settings.path, self.policy.causal_lm)
        plan = split_torch_state_dict_into_shards(
            self._shapes(source), max_shard_size=self.file_bytes
        )
        waiting = {file: set(names) for file, names in plan.filename_to_tensors.items()}
        buffered_tensors: dict[str, Tensor] = {}
        trained = (
            self._stored_tensors(name, full_weight, source) for name, full_weight in gathered
        )
        rest = (
            {name: read_whole(tensor).to(self._rest_dtype(tensor))}
            for name, tensor in self._rest(source).items()
        )
        for stored in chain(trained, rest):
            buffered_tensors |= stored
            full = [file for file, names in waiting.items() if names <= buffered_tensors.keys()]
            for file in full:
                save_file(
                    {name: buffered_tensors.pop(name) for name in waiting.pop(file)},
                    self._partial / file,
                    {"format": "pt"},
                )
        assert not buffered_tensors
        assert not waiting
        if plan.is_sharded:
            index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
            (self._partial / SAFE_WEIGHTS_INDEX_NAME).write_text(
                json.dumps(index, indent=2, sort_keys=True) + "\n"
            )

    def _shapes(self, source: StoredModel) -> dict[str, Tensor]:
        """Every stored tensor on the meta device; a view would count with the size of its base."""
        shapes_and_dtypes = {
            name: (weight.shape, self._dtype) for name, weight in self.policy.trained_weights()
        }
        shapes_and_dtypes |= {
            name: (buffer.shape, buffer.dtype) for name, buffer in self.policy.stored_buffers()
        }
        shapes: dict[str, Tensor] = {}
        empty = partial(torch.empty, device="meta")
        for name, (shape, dtype) in shapes_and_dtypes.items():
            stored = self._stored_tensors(name, empty(shape, dtype=dtype), source)
            shapes |= {key: empty(tensor.shape, dtype=dtype) for key, tensor in stored.items()}
        for name, rest in self._rest(source).items():
            shapes[name] = empty(rest.get_shape(), dtype=self._rest_dtype(rest))
        return shapes

    def _rest(self, source: StoredModel) -> dict[str, Slices]:
        return dequantise(
            source.rest, getattr(self.policy.causal_lm.config, "quantization_config", None)
        )

    def _rest_dtype(self, tensor: Slices) -> torch.dtype:
        from transformers.modeling_utils import str_to_torch_dtype

        if not isinstance(tensor, StoredTensor):
            return cast(torch.dtype, self._dtype)
        return cast(torch.dtype, str_to_torch_dtype[tensor.dtype])

    def _write_others(self) -> None:
        """End tokens and sampling defaults are in the generation config alone, so the source's own
        is copied.
        """
        settings = self.settings
        self._copy_from_source()
        config = whole_config(settings)
        for part_config in (config, config.get_text_config()):
            part_config.dtype = settings.dtype
            if hasattr(part_config, "quantization_config"):  # the exported weights are not
                del part_config.quantization_config
        config.save_pretrained(self._partial)

    def _copy_from_source(self, patterns: Sequence[str] = ("*",)) -> None:
        """Copy the source's files of these patterns that hold no weights."""
        source = Path(self.settings.path)
        if (
            not source.is_dir()
        ):  # fetched when the run began, so it is cached even without a network
            source = Path(snapshot_download(self.settings.path, ignore_patterns=[*WEIGHTS, "*/*"]))
        folders = [source, *(source / name for name in FOLDERS)]
        for path in (path for folder in folders for path in folder.glob("*")):
            is_wanted = any(path.match(pattern) for pattern in patterns)
            if path.is_file() and is_wanted and not any(path.match(pattern) for pattern in WEIGHTS):
                target = self._partial / path.relative_to(source)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(path, target)

    def _write_custom_functions(self) -> None:
        if self.custom_functions:
            parts = {
                setting: custom_function.model_dump(mode="json")
                for setting, custom_function in self.custom_functions.items()
            }
            (self._partial / CUSTOM_FUNCTIONS).write_text(json.dumps(parts, indent=1) + "\n")


def _let_the_umask_decide(folder: Path) -> None:
    """safetensors writes for the owner alone; whoever may list the folder may read the model."""
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _disk_error(error: Exception) -> OSError:
    """The system's error; safetensors reports it as text."""
    if isinstance(error, OSError):
        return error
    number = OS_ERROR.search(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))
