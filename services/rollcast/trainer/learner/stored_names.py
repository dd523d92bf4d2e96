"""The names under which weights travel to the generators: those of the model's own files, but for stacked experts.

Transformers renames some weights when it reads them, and says how to undo that; its own export does. vLLM reads the
names of the files. The experts of a layer are one 3-D weight here and one for each expert in the files; vLLM takes the
stack too, under a name of its own.
"""

from typing import Any

from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    Chunk,
    PrefixChange,
    SplitModulelist,
    WeightConverter,
    WeightRenaming,
    rename_source_key,
)

STACKS = {
    "mlp.experts.*.gate_proj.weight": "mlp.experts.gate_up_proj",
    "mlp.experts.*.down_proj.weight": "mlp.experts.down_proj",
    "block_sparse_moe.experts.*.w1.weight": "block_sparse_moe.experts.w13",
    "block_sparse_moe.experts.*.w2.weight": "block_sparse_moe.experts.w2",
}
"""What each expert's weights are stored as (of two that are fused the first), and what vLLM calls their stack."""


def published_names(causal_lm: Any) -> dict[str, str | None]:
    """Return the published name of every weight of a Transformers model, by its name there.

    None: it is stored in a form that neither is renamed only nor a stack that vLLM knows.
    """
    conversions = get_model_conversion_mapping(causal_lm, add_legacy=False)
    # Whether a file has such a prefix is not known without the file; vLLM takes the model's own names.
    undo = [one.reverse_transform() for one in reversed(conversions) if not isinstance(one, PrefixChange)]
    renamings = [one for one in undo if isinstance(one, WeightRenaming)]
    converters = [one for one in undo if isinstance(one, WeightConverter)]
    return {name: _published_name(name, renamings, converters) for name, _ in causal_lm.named_parameters()}


def _published_name(name: str, renamings: list[Any], converters: list[Any]) -> str | None:
    stored, pattern = rename_source_key(name, renamings, converters, reverse=True)
    if pattern is None:
        return str(stored)
    (converter,) = (one for one in converters if pattern in one.source_patterns)
    if not all(isinstance(operation, Chunk | SplitModulelist) for operation in converter.operations):
        return None
    for suffix, stack in STACKS.items():
        if stored.endswith(f".{suffix}"):
            return str(stored).removesuffix(suffix) + stack
    return None
