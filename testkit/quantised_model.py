"""Models stored in 8 or 4 bits, each next to one that is stored as the numbers that these bits
stand for.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from testkit.tiny_model import VOCABULARY, write_tokenizer

BLOCK = (32, 24)
"""Rows and columns that share a factor; no multiple of every weight's."""
WEIGHTS = "model.safetensors"


def write_fp8(source: Path, quantised: Path, plain: Path) -> None:
    """`source`: an unquantised model."""
    stored = load_file(source / WEIGHTS)
    numbers = dict(stored)
    for name, weight in load_file(source / WEIGHTS).items():
        if name.endswith("_proj.weight"):
            stored[name], stored[f"{name}_scale_inv"], numbers[name] = in_blocks(weight)
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            parts = zip(*(in_blocks(expert) for expert in weight), strict=True)
            stored[name], stored[f"{name}_scale_inv"], numbers[name] = map(torch.stack, parts)
    settings = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": list(BLOCK),
    }
    store(source, quantised, stored, settings)
    store(source, plain, numbers, None)


def in_blocks(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The 8-bit numbers, the factor of each block, and their products."""
    height, width = BLOCK
    bits = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    factors = torch.empty(-(-weight.shape[0] // height), -(-weight.shape[1] // width))
    product = torch.empty_like(weight)
    for row in range(factors.shape[0]):
        for column in range(factors.shape[1]):
            block = (
                slice(row * height, (row + 1) * height),
                slice(column * width, (column + 1) * width),
            )
            # Largest number of E4M3
            factors[row, column] = weight[block].abs().max() / 448.0
            bits[block] = (weight[block] / factors[row, column]).to(torch.float8_e4m3fn)
            product[block] = bits[block].float() * factors[row, column]
    return bits, factors, product


def write_mxfp4(quantised: Path, plain: Path) -> None:
    """A random gpt-oss."""
    config = transformers.GptOssConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        layer_types=["full_attention"] * 2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(
        plain
    )
    write_tokenizer(plain)
    stored = load_file(plain / WEIGHTS)
    numbers = dict(stored)
    for name, weight in numbers.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            num_experts, columns, rows = weight.shape
            del stored[name]
            blocks = torch.randint(
                0, 256, (num_experts, rows, columns // 32, 16), dtype=torch.uint8
            )
            exponents = torch.randint(120, 128, blocks.shape[:3], dtype=torch.uint8)
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": exponents}
            numbers[name] = transformers.integrations.mxfp4.convert_moe_packed_tensors(
                blocks, exponents, dtype=torch.float32
            )
    store(plain, quantised, stored, {"quant_method": "mxfp4"})
    save_file(numbers, plain / WEIGHTS, {"format": "pt"})


def store(
    source: Path, folder: Path, tensors: dict[str, Tensor], settings: Mapping[str, object] | None
) -> None:
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    if settings is not None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
