"""A model as its config describes it, without weights; and whether it can be trained here.

Only the config is read: the model is built on the meta device, and the computation from its body to
its logits is tried with a head of a few rows. Transformers' loading code takes seconds to import,
so the functions that need it import it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from torch import nn

from rollcast.config.model import TEXT_MODELS, Model, text_part
from rollcast.trainer.learner.head import LogitShape
from rollcast.trainer.learner.quantised_files import is_known
from rollcast.trainer.learner.recurrence import shorten_chunks
from rollcast.trainer.learner.unsupported import Unsupported

RANDOM_ROUTERS = frozenset({"phimoe"})
"""Model types whose routers draw experts at random while they train."""
STACKS = {
    "mlp.experts.*.gate_proj.weight": "mlp.experts.gate_up_proj",
    "mlp.experts.*.down_proj.weight": "mlp.experts.down_proj",
    "block_sparse_moe.experts.*.w1.weight": "block_sparse_moe.experts.w13",
    "block_sparse_moe.experts.*.w2.weight": "block_sparse_moe.experts.w2",
}
"""Names of each expert's weights in files (of two that are fused the first), and vLLM's name of
their stack."""


def read_config(settings: Model) -> Any:
    """Read the config, with everything random switched off: else the ratio to the generators'
    log-probs was noise.
    """
    config = stored_config(settings)
    for name, value in config.to_dict().items():
        # Such as attention_dropout, resid_pdrop and router_jitter_noise.
        if isinstance(value, float) and (
            "dropout" in name or name.endswith(("pdrop", "jitter_noise"))
        ):
            setattr(config, name, 0.0)
    return config


def stored_config(settings: Model) -> Any:
    """The stored config; for a kind of TEXT_MODELS that of the text model, as if it were stored
    alone.
    """
    config = whole_config(settings)
    if config.model_type not in TEXT_MODELS:
        return config
    text = text_part(config)
    text.name_or_path = config.name_or_path
    if (quantised := getattr(config, "quantization_config", None)) is not None:
        text.quantization_config = quantised
    return text


def whole_config(settings: Model) -> Any:
    """The config as the files have it: of a kind of TEXT_MODELS more than the text model."""
    return transformers.AutoConfig.from_pretrained(
        settings.path, trust_remote_code=settings.trust_remote_code
    )


def skeleton(settings: Model) -> Any:
    """Return the causal LM on the meta device, in float32.

    Raises Unsupported, and what Transformers raises.
    """
    config = read_config(settings)
    _check_kind(config)
    with torch.device("meta"):
        causal_lm = transformers.AutoModelForCausalLM.from_config(
            config,
            dtype=torch.float32,
            trust_remote_code=settings.trust_remote_code,
            attn_implementation=_attention(config),
        )
    _check_head(causal_lm)
    shorten_chunks(causal_lm)
    renamed = [name for name, published in published_names(causal_lm).items() if published is None]
    if renamed:
        raise Unsupported(
            f"stores {len(renamed)} weights in a form that the generators do not take "
            f"({renamed[0]})"
        )
    return causal_lm


def body(causal_lm: Any) -> Any:
    """The part that makes the hidden states.

    Llama 4 calls it otherwise than its `base_model_prefix` says.
    """
    return causal_lm.model if causal_lm.base_model is causal_lm else causal_lm.base_model


def logit_shape(config: Any) -> LogitShape:
    """Return the steps from projection to logits in a model of this Hugging Face config."""
    return LogitShape(
        cap=getattr(config, "final_logit_softcapping", None),
        scale=getattr(config, "logit_scale", None)
        or 1 / (getattr(config, "logits_scaling", None) or 1.0),
    )


def _attention(config: Any) -> str | None:
    """Torch's fused attention silently ignores a soft cap on the scores (Gemma 2)."""
    return "eager" if getattr(config, "attn_logit_softcapping", None) is not None else None


def _check_kind(config: Any) -> None:
    if type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING and not config.is_decoder:
        raise Unsupported(
            f"is not a causal language model: each token of a {config.model_type} sees those after "
            "it"
        )
    if config.get_text_config() is not config and _has_text_model(config):
        raise Unsupported(
            f"is a {config.model_type} that takes more than text, and the generators would "
            "serve all of it",
            "give its text model alone, which "
            "AutoModelForCausalLM.from_pretrained(..).save_pretrained(FOLDER) writes",
        )
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None and not is_known(quantization):
        raise Unsupported(
            f"is quantised by {quantization.get('quant_method')!r}, and of quantised files only "
            "FP8 in blocks and MXFP4 are read",
            "give its weights as they were before that, or those that "
            "AutoModelForCausalLM.from_pretrained(..).dequantize().save_pretrained(FOLDER) writes",
        )
    if config.model_type in RANDOM_ROUTERS:
        raise Unsupported(
            f"is a {config.model_type}, whose routers draw experts at random while they train"
        )


def _has_text_model(config: Any) -> bool:
    """Whether Transformers takes the text model alone, under names that the whole model's files do
    not have.
    """
    mapping = transformers.AutoModelForCausalLM._model_mapping
    return type(config) in mapping and getattr(mapping[type(config)], "config_class", None) is type(
        config.get_text_config()
    )


def _check_head(causal_lm: Any) -> None:
    """Compare the model's own logits with those that the head computes
    from the same hidden states.
    """
    if getattr(causal_lm.get_output_embeddings(), "bias", None) is not None:
        raise Unsupported("has a bias of the output projection")
    width = causal_lm.get_output_embeddings().weight.shape[1]
    numbers = torch.Generator().manual_seed(0)
    # Positions at which the model's own logits are compared with the head's.
    num_probe_tokens = 4
    hidden = torch.randn(1, num_probe_tokens, width, generator=numbers)
    # Rows of the head in that comparison
    weight = torch.randn(8, width, generator=numbers)
    expected = logit_shape(causal_lm.config).apply_(nn.functional.linear(hidden, weight))
    try:
        with torch.no_grad(), _replaced_body_and_head(causal_lm, hidden, weight):
            logits = causal_lm(
                input_ids=torch.zeros(1, num_probe_tokens, dtype=torch.long), use_cache=False
            ).logits
        is_known = torch.allclose(expected, logits, rtol=0, atol=1e-4 * float(logits.abs().max()))
    except (
        RuntimeError,
        NotImplementedError,
    ):  # it uses more weights than these, and they are on no device
        is_known = False
    if not is_known:
        raise Unsupported("computes its logits in another way than its config describes")


@contextmanager
def _replaced_body_and_head(
    causal_lm: Any, hidden: torch.Tensor, weight: torch.Tensor
) -> Iterator[None]:
    """The model with `hidden` in place of its body's output and `weight` in place of its head's."""
    from transformers.modeling_outputs import MoeModelOutputWithPast

    head = causal_lm.get_output_embeddings()
    inner = body(causal_lm)
    rows, width = weight.shape
    few = nn.Linear(width, rows, bias=False, device="meta")  # there it draws no random numbers
    few.weight = nn.Parameter(weight)
    inner.forward = lambda *arguments, **named: MoeModelOutputWithPast(last_hidden_state=hidden)
    causal_lm.set_output_embeddings(few)
    try:
        yield
    finally:
        causal_lm.set_output_embeddings(head)
        # The method of its class is in use again.
        del inner.forward


def published_names(causal_lm: Any) -> dict[str, str | None]:
    """Return the name under which each weight of a Transformers model travels to the generators, by
    its name there.

    Buffers that belong to a model's files are included, such as the bias of a router's choice.

    Transformers renames some weights when it reads them, and says how to undo that; vLLM reads the
    names of the files. The experts of a layer are one 3-D weight here and one for each expert in
    the files; vLLM takes the stack too, under a name of its own. None: it is stored in a form that
    neither is renamed only nor a stack that vLLM knows.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import PrefixChange, WeightConverter, WeightRenaming

    conversions = get_model_conversion_mapping(causal_lm, add_legacy=False)
    # Whether a file has such a prefix is not known without the file; vLLM takes the model's own
    # names.
    undo = [
        conversion.reverse_transform()
        for conversion in reversed(conversions)
        if not isinstance(conversion, PrefixChange)
    ]
    renamings = [renaming for renaming in undo if isinstance(renaming, WeightRenaming)]
    converters = [converter for converter in undo if isinstance(converter, WeightConverter)]
    stored = causal_lm.state_dict().keys()
    names = [name for name, _ in causal_lm.named_parameters()]
    names += [name for name, _ in causal_lm.named_buffers() if name in stored]
    return {name: _published_name(name, renamings, converters) for name in names}


def _published_name(name: str, renamings: list[Any], converters: list[Any]) -> str | None:
    from transformers.core_model_loading import Chunk, SplitModulelist, rename_source_key

    stored, pattern = rename_source_key(name, renamings, converters, reverse=True)
    if pattern is None:
        return str(stored)
    (converter,) = (candidate for candidate in converters if pattern in candidate.source_patterns)
    if not all(
        isinstance(operation, Chunk | SplitModulelist) for operation in converter.operations
    ):
        return None
    for suffix, stack in STACKS.items():
        if stored.endswith(f".{suffix}"):
            return str(stored).removesuffix(suffix) + stack
    return None
