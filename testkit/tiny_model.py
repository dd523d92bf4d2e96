"""Tiny random models with a character tokenizer, made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

CHARACTERS = "0123456789+-*/=() \n<>|abcdefghijklmnopqrstuvwxyz.,?!:;"
VOCABULARY = 64
ARCHITECTURES = (
    "qwen3",
    "qwen3_moe",
    "mixtral",
    "glm4_moe",
    "deepseek_v3",
    "minimax_m2",
    "llama",
    "llama4",
    "gemma2",
    "granite",
    "cohere",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "nemotron_h",
    "gpt_oss",
)
RECURRENT = ("qwen3_5", "qwen3_5_moe", "qwen3_next", "nemotron_h")
"""Names in ARCHITECTURES whose models have layers with a recurrent state."""

BIASED_ROUTERS = ("glm4_moe", "deepseek_v3", "minimax_m2")
"""Names in ARCHITECTURES whose routers choose by score and bias."""


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
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=max_length,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        initializer_range=0.08,
    )
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
    vision: dict[str, Any] = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "out_hidden_size": 64,
    }
    vision |= {"num_position_embeddings": 16, "patch_size": 4}
    config = CONFIG_MAPPING[architecture](text_config=text.config.to_dict(), vision_config=vision)
    whole_model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    whole_model.save_pretrained(folder)
    names = {
        name for name in load_file(folder / "model.safetensors") if name.startswith("model.visual.")
    }
    tensors = {
        name: tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
        if name in names
    }
    for name, weight in text.state_dict().items():
        prefix = "" if name.startswith("lm_head.") else "model.language_model."
        tensors[prefix + name.removeprefix("model.")] = weight.clone()
    tensors["mtp.fc.weight"] = torch.ones(64, 128, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    write_tokenizer(folder)
    shutil.rmtree(text_folder)


def _architecture_config(architecture: str, max_length: int) -> Any:
    from transformers import (
        CohereConfig,
        Gemma2Config,
        GptOssConfig,
        GraniteConfig,
        Llama4TextConfig,
        LlamaConfig,
        MixtralConfig,
        Qwen3Config,
        Qwen3MoeConfig,
    )

    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": max_length,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "initializer_range": 0.08,
    }
    if architecture == "qwen3":
        return Qwen3Config(**common, tie_word_embeddings=True)
    if (
        architecture == "qwen3_moe"
    ):  # a dense layer among them; experts narrower than the CPU kernel's blocks
        experts = {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "norm_topk_prob": True,
        }
        return Qwen3MoeConfig(**common | {"num_hidden_layers": 3}, **experts, mlp_only_layers=[1])
    if architecture == "mixtral":  # stored as block_sparse_moe.experts.N.w1, w2, w3
        return MixtralConfig(
            **common | {"intermediate_size": 48}, num_local_experts=4, num_experts_per_tok=2
        )
    if architecture in BIASED_ROUTERS:
        return _biased_router_config(architecture, common)
    if (
        architecture == "llama4"
    ):  # a dense layer, then experts and a shared one; a layer without rotary frequencies
        experts = {"num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
        layers = {
            "num_hidden_layers": 4,
            "intermediate_size_mlp": 96,
            "attention_chunk_size": max_length,
        }
        return Llama4TextConfig(**common | layers, **experts, tie_word_embeddings=False)
    if architecture == "llama":  # long-context rope: frequencies are rescaled
        rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0}
        rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": max_length // 4}
        return LlamaConfig(**common, rope_parameters=rope, tie_word_embeddings=False)
    if architecture in RECURRENT:
        return _recurrent_config(architecture, common)
    if (
        architecture == "gpt_oss"
    ):  # sinks in attention, biases everywhere, a window in every other layer
        experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
        return GptOssConfig(**common | {"intermediate_size": 64}, **experts, sliding_window=32)
    if architecture == "granite":  # scaled embeddings, scores, branches and logits
        scales = {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
        }
        return GraniteConfig(**common, **scales, logits_scaling=0.7, tie_word_embeddings=False)
    if (
        architecture == "cohere"
    ):  # attention and feed-forward side by side behind one norm; tied; scaled logits
        return CohereConfig(**common, logit_scale=1.5)
    assert (
        architecture == "gemma2"
    )  # tied, scaled embeddings; caps on scores and logits; a window in every other layer
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}
    return Gemma2Config(**common, **caps, query_pre_attn_scalar=32, sliding_window=32)


def _recurrent_config(architecture: str, common: dict[str, Any]) -> Any:
    """Three layers with a recurrent state, then one with attention; in Nemotron-H every layer is
    one thing alone.
    """
    from transformers import (
        NemotronHConfig,
        Qwen3_5MoeTextConfig,
        Qwen3_5TextConfig,
        Qwen3NextConfig,
    )

    if architecture == "nemotron_h":
        mamba = {"mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 2}
        layers = {"layers_block_type": ["mamba", "mlp", "attention", "mlp", "mamba", "mlp"]}
        return NemotronHConfig(**common | layers | mamba)
    linear = {
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    }
    experts = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 48,
    }
    settings = common | linear | {"num_hidden_layers": 4, "tie_word_embeddings": False}
    if architecture == "qwen3_next":
        return Qwen3NextConfig(**settings, **experts)
    # Positions of three kinds (text, height, width), which are equal for text alone.
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.25,
    }
    rope |= {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    settings["rope_parameters"] = rope
    if architecture == "qwen3_5":
        return Qwen3_5TextConfig(**settings)
    return Qwen3_5MoeTextConfig(**settings, **experts)


def _biased_router_config(architecture: str, common: dict[str, Any]) -> Any:
    """One of BIASED_ROUTERS, with 8 experts of which a token gets 2."""
    from transformers import DeepseekV3Config, Glm4MoeConfig, MiniMaxM2Config

    if (
        architecture == "minimax_m2"
    ):  # no groups; norms over all heads together; a part of a head rotates
        experts = {"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 48}
        choice: dict[str, Any] = {
            "scoring_func": "sigmoid",
            "use_routing_bias": True,
        }  # vLLM reads them
        return MiniMaxM2Config(**common | experts, **choice, use_qk_norm=True, rotary_dim=16)
    layers = {"num_hidden_layers": 3, "first_k_dense_replace": 1}
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    groups: dict[str, Any] = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5}
    shared_settings = common | layers | experts | groups
    if (
        architecture == "glm4_moe"
    ):  # a dense layer, then experts and a shared one; half of a head rotates
        return Glm4MoeConfig(**shared_settings, use_qk_norm=True, attention_bias=True)
    assert (
        architecture == "deepseek_v3"
    )  # latent attention of the only width that vLLM's CPU kernel has
    ranks = {"q_lora_rank": 24, "kv_lora_rank": 512}
    heads = {
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 32,
        "v_head_dim": 32,
        "num_key_value_heads": 4,
    }
    choice = {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}  # vLLM reads them
    del shared_settings["head_dim"]
    return DeepseekV3Config(**shared_settings | ranks | heads, **choice)


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
