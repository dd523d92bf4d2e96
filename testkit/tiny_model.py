"""Tiny random models with a character tokenizer, made on the spot."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

CHARACTERS = "0123456789+-*/=() \n<>|abcdefghijklmnopqrstuvwxyz.,?!:;"
VOCABULARY = 64
_COMMON: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "initializer_range": 0.08}  # fmt: skip
_UNTIED = {"tie_word_embeddings": False}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
"""Narrower than the blocks of the CPU kernel."""
_LOCAL_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
_ROUTED_EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "num_hidden_layers": 3, "first_k_dense_replace": 1,
    "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5}  # fmt: skip
"""A dense layer, then experts and a shared one."""
_RECURRENCE = {"linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "num_hidden_layers": 4, **_UNTIED}  # fmt: skip
"""Three layers with a recurrent state, then one with attention."""
_SHARED_EXPERTS = {**_EXPERTS, "shared_expert_intermediate_size": 48}
# Positions of three kinds (text, height, width), which are equal for text alone.
_ROPE_3D: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
    "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1],
    "mrope_interleaved": True}}  # fmt: skip
_CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3": {"tie_word_embeddings": True},
    # A dense layer among them
    "qwen3_moe": {**_EXPERTS, "norm_topk_prob": True, "num_hidden_layers": 3,
        "mlp_only_layers": [1]},
    # Stored as block_sparse_moe.experts.N.w1, w2, w3
    "mixtral": {**_LOCAL_EXPERTS, "intermediate_size": 48},
    # Half of a head rotates
    "glm4_moe": {**_ROUTED_EXPERTS, "use_qk_norm": True, "attention_bias": True},
    # Latent attention of the only width that vLLM's CPU kernel has. vLLM reads how experts are
    # chosen.
    "deepseek_v3": {**_ROUTED_EXPERTS, "q_lora_rank": 24, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 32, "v_head_dim": 32, "num_key_value_heads": 4,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    # No groups; norms over all heads together; a part of a head rotates. vLLM reads how experts are
    # chosen.
    "minimax_m2": {**_LOCAL_EXPERTS, "num_local_experts": 8, "intermediate_size": 48,
        "scoring_func": "sigmoid", "use_routing_bias": True, "use_qk_norm": True, "rotary_dim": 16},
    # Long-context rope: frequencies are rescaled
    "llama": {**_UNTIED, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4,
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    # A dense layer, then experts and a shared one; a layer without rotary frequencies
    "llama4": {**_UNTIED, "num_local_experts": 4, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2, "num_hidden_layers": 4, "intermediate_size_mlp": 96},
    # Tied, scaled embeddings; caps on scores and logits; a window in every other layer
    "gemma2": {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0,
        "query_pre_attn_scalar": 32, "sliding_window": 32},
    # Scaled embeddings, scores, branches and logits
    "granite": {**_UNTIED, "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
        "attention_multiplier": 0.2, "logits_scaling": 0.7},
    # Attention and feed-forward side by side behind one norm; tied; scaled logits
    "cohere": {"logit_scale": 1.5},
    "qwen3_5": {**_RECURRENCE, **_ROPE_3D},
    "qwen3_5_moe": {**_RECURRENCE, **_ROPE_3D, **_SHARED_EXPERTS},
    "qwen3_next": {**_RECURRENCE, **_SHARED_EXPERTS},
    # Every layer is one thing alone
    "nemotron_h": {"layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba", "mlp"],
        "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2},
    # Sinks in attention, biases everywhere, a window in every other layer
    "gpt_oss": {**_LOCAL_EXPERTS, "intermediate_size": 64, "sliding_window": 32},
}  # fmt: skip
"""Architecture -> its settings besides _COMMON."""
_TEXT_MODELS = ("llama4", "qwen3_5", "qwen3_5_moe")
"""Names in ARCHITECTURES that are the text part of a model of more than text."""
ARCHITECTURES = tuple(_CONFIGS)
RECURRENT = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "nemotron_h")
"""Names in ARCHITECTURES whose models have layers with a recurrent state."""


def make_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    hidden: int = 64,
    layers: int = 2,
    max_length: int = 512,
    head_dim: int = 32,
) -> None:
    """Write config, float32 weights and tokenizer of a Qwen3; about 0.15 million parameters by
    default.

    vLLM serves heads of 32 numbers and more on a CPU: one with fewer is a model that it cannot
    serve.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    settings = {"hidden_size": hidden, "intermediate_size": 3 * hidden, "head_dim": head_dim,
        "num_hidden_layers": layers, "max_position_embeddings": max_length}  # fmt: skip
    config = Qwen3Config(**_COMMON | _UNTIED | settings)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # Sharper than chance, and a text of some hundred tokens: logit 0 for its end among larger
        # ones.
        model.lm_head.weight.mul_(4.0)
        model.lm_head.weight[config.eos_token_id] = 0.0
    model.save_pretrained(folder)


def make_architecture(
    folder: Path, architecture: str, *, seed: int = 0, max_length: int = 256
) -> None:
    """Write a random model of one of ARCHITECTURES with its peculiar features switched on at sizes
    at which they matter."""
    import torch
    from transformers import AutoModelForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(
        _architecture_config(architecture, max_length), dtype=torch.float32
    )
    with torch.no_grad():
        # Layers that say more than the embeddings they are added to, which else would repeat the
        # last token.
        for name, parameter in model.model.layers.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(_scale(architecture, name))
        for name, buffer in model.named_buffers():
            if name.endswith(
                "e_score_correction_bias"
            ):  # as far apart as the scores that it is added to
                buffer.copy_(torch.linspace(-0.2, 0.2, len(buffer))[torch.randperm(len(buffer))])
        if not model.config.tie_word_embeddings:
            model.lm_head.weight.mul_(2.0 if architecture in RECURRENT else 4.0)
        if (
            architecture == "nemotron_h"
        ):  # logit 0 for the end of a text, which it would reach after a few tokens
            model.lm_head.weight[model.config.eos_token_id] = 0.0
    model.save_pretrained(folder)


def _scale(architecture: str, name: str) -> float:
    """The factor of a weight, so that layers say more than the embeddings they are added to.

    Latent attention is so wide that its sums are large as they are. A recurrence would multiply
    rounding as well: in layers as large its two forms in float32, token by token and in chunks,
    were 2e-4 and 1e-3 from float64.
    """
    if architecture in RECURRENT:
        return 0.6 if architecture == "nemotron_h" else 1.0
    return 0.5 if name.endswith("kv_b_proj.weight") else 3.0


def make_whole_llama4(folder: Path, **settings: Any) -> None:
    """This Llama 4 as its publisher stores it: the text model and a vision model
    in one checkpoint.
    """
    import torch
    from transformers import (
        AutoModelForCausalLM,
        Llama4Config,
        Llama4ForConditionalGeneration,
        Llama4VisionConfig,
    )

    text_folder = folder / "text"
    make_architecture(text_folder, "llama4", **settings)
    text = AutoModelForCausalLM.from_pretrained(text_folder, dtype=torch.float32)
    vision = Llama4VisionConfig(
        hidden_size=16,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
        vision_output_dim=16,
        projector_input_dim=16,
        projector_output_dim=16,
    )
    config = Llama4Config(text_config=text.config.to_dict(), vision_config=vision.to_dict())
    whole_model = Llama4ForConditionalGeneration._from_config(config, dtype=torch.float32)
    whole_model.language_model.load_state_dict(text.state_dict())
    whole_model.save_pretrained(folder)
    write_tokenizer(folder)
    shutil.rmtree(text_folder)


def make_whole_qwen3_5(folder: Path, architecture: str = "qwen3_5", **settings: Any) -> None:
    """This Qwen3.5 as its publisher stores it: text model, vision model and a predictor of the
    token after the next.

    Its experts are stored in stacks.
    """
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    text_folder = folder / "text"
    make_architecture(text_folder, architecture, **settings)
    text = AutoModelForCausalLM.from_pretrained(text_folder, dtype=torch.float32)
    with torch.no_grad():
        text.lm_head.weight[text.config.eos_token_id] = 0.0  # a text of some hundred tokens
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2,
        "out_hidden_size": 64, "num_position_embeddings": 16, "patch_size": 4}  # fmt: skip
    config = CONFIG_MAPPING[architecture](text_config=text.config.to_dict(), vision_config=vision)
    whole_model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    whole_model.save_pretrained(folder)
    tensors = {
        name: tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
        if name.startswith("model.visual.")
    }
    for name, weight in text.state_dict().items():
        prefix = "" if name.startswith("lm_head.") else "model.language_model."
        tensors[prefix + name.removeprefix("model.")] = weight.clone()
    tensors["mtp.fc.weight"] = torch.ones(64, 128, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder)
    shutil.rmtree(text_folder)


def _architecture_config(architecture: str, max_length: int) -> Any:
    from transformers import AutoConfig

    settings = copy.deepcopy(
        {**_COMMON, "max_position_embeddings": max_length, **_CONFIGS[architecture]}
    )
    if architecture == "llama":
        settings["rope_parameters"]["original_max_position_embeddings"] = max_length // 4
    elif architecture == "llama4":
        settings["attention_chunk_size"] = max_length
    elif architecture == "deepseek_v3":
        del settings["head_dim"]
    model_type = f"{architecture}_text" if architecture in _TEXT_MODELS else architecture
    return AutoConfig.for_model(model_type, **settings)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of one token per character."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
    for character in CHARACTERS:
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)


def perturb(weights: dict[str, Any], seed: int, scale: float = 0.3) -> dict[str, Any]:
    """Weights of another version: every value times 1 + scale x noise."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        name: value * (1.0 + scale * torch.randn(value.shape, generator=generator))
        for name, value in weights.items()
    }
