"""Export of a run with LoRA: the adapter alone, as a folder that PEFT and vLLM read.

    adapter_model.safetensors     the adapter's weights, in the model's dtype
    adapter_config.json           rank, alpha, layers, the base model (a folder's whole path) and
                                  its revision
    tokenizer.json, ..            the base's tokenizer and chat template, as they are

`rollcast model merge` makes a whole model of it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from rollcast.config.custom_function import CustomFunction
from rollcast.config.model import Model
from rollcast.trainer.learner.adapters import adapted_layers, adapter_config, published_adapters
from rollcast.trainer.learner.architecture import stored_config
from rollcast.trainer.learner.export import TOKENIZER, Export
from rollcast.trainer.learner.model import Policy

WEIGHTS_FILE = "adapter_model.safetensors"


def make_export(
    policy: Policy,
    settings: Model,
    folder: Path,
    *,
    custom_functions: Mapping[str, CustomFunction],
) -> Export:
    """The export of a policy: of its adapter alone if it has one."""
    kind = Export if policy.lora is None else AdapterExport
    return kind(policy, settings, folder, custom_functions=custom_functions)


class AdapterExport(Export):
    """The adapter of a policy, in one file. Otherwise written as a whole model is."""

    def _write_weights(self, gathered: Iterator[tuple[str, Tensor]]) -> None:
        published = published_adapters(self.policy.causal_lm)
        adapter: dict[str, Tensor] = {}
        for name, full_weight in gathered:
            stored = published[name]
            assert stored is not None, name
            adapter[stored] = full_weight.contiguous()
        save_file(adapter, self._partial / WEIGHTS_FILE, {"format": "pt"})

    def _write_others(self) -> None:
        lora = self.policy.lora
        assert lora is not None
        layers = sorted({name.rpartition(".")[2] for name in adapted_layers(self.policy.causal_lm)})
        revision = getattr(stored_config(self.settings), "_commit_hash", None)
        folder = Path(self.settings.path)
        base = str(folder.absolute()) if folder.is_dir() else self.settings.path
        config = adapter_config(lora, layers, base_model_name_or_path=base, revision=revision)
        config.inference_mode = True
        config.save_pretrained(self._partial)
        self._copy_from_source(TOKENIZER)
