"""Weights that are stored in 8 or 4 bits, as the numbers that they stand for. Each rank computes
its own slices.

FP8 (DeepSeek-V3, Qwen3)   NAME, and NAME_scale_inv with one factor for each block of it; also of a
                           stack of matrices
MXFP4 (gpt-oss)            NAME_blocks, two numbers a byte, and NAME_scales, an exponent for each 32
                           of them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rollcast.trainer.learner.stored_tensors import Slices
from rollcast.trainer.learner.unsupported import Unsupported

FP8_SCALES = "_scale_inv"
FACTORS = ("F32", "BF16", "F16", "F8_E8M0")
"""Types of factors that are the numbers they look like; whole numbers would be exponents."""
FEW_BITS = ("F8_", "F6_", "F4")
"""Beginnings of the types whose numbers stand for nothing without their scales."""
PACKED = ("U8", "I8")
"""Types that hold such numbers in a quantised model, and a mask, say, in others."""
MXFP4_BLOCKS = "_blocks"
MXFP4_SCALES = "_scales"
FP4_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The numbers of three bits; a fourth one is the sign."""


def is_known(quantization: Mapping[str, Any]) -> bool:
    """Whether files of this quantization_config can be read."""
    method = quantization.get("quant_method")
    return method == "mxfp4" or (
        method == "fp8" and quantization.get("weight_block_size") is not None
    )


def dequantise(
    stored: Mapping[str, Slices], quantization: Mapping[str, Any] | None
) -> dict[str, Slices]:
    """The tensors without scales, under the names that an unquantised model's files have.

    Raises Unsupported for a tensor of few bits whose scales are not there.
    """
    tensors = dict(stored)
    method = None if quantization is None else quantization["quant_method"]
    for name in stored:
        if method == "fp8" and name.endswith(FP8_SCALES):
            assert quantization is not None
            rows, columns = quantization["weight_block_size"]
            weight = name.removesuffix(FP8_SCALES)
            if weight in stored:
                tensors[weight] = _block_scaled(
                    weight, stored[weight], tensors.pop(name), (rows, columns)
                )
        elif method == "mxfp4" and name.endswith(MXFP4_BLOCKS):
            weight = name.removesuffix(MXFP4_BLOCKS)
            scales = f"{weight}{MXFP4_SCALES}"
            if scales in stored:
                tensors[weight] = Mxfp4Stack(tensors.pop(name), tensors.pop(scales))
    for name, tensor in tensors.items():
        dtype = tensor.get_dtype()
        if dtype.startswith(FEW_BITS) or (method is not None and dtype in PACKED):
            raise Unsupported(
                f"stores {name} as {dtype} without the scales of its numbers",
                "give a complete model, or one in 16 bits",
            )
    return tensors


def _block_scaled(
    name: str, numbers: Slices, factors: Slices, block: tuple[int, int]
) -> "BlockScaled":
    """Raises Unsupported if there is no factor for each block."""
    *stack, num_rows, num_columns = numbers.get_shape()
    # Rounded up, because blocks at the edges may be cut.
    expected = [*stack, -(-num_rows // block[0]), -(-num_columns // block[1])]
    if factors.get_shape() != expected or factors.get_dtype() not in FACTORS:
        raise Unsupported(
            f"stores {name}{FP8_SCALES} as {factors.get_shape()} of {factors.get_dtype()}, where "
            f"weight_block_size = {list(block)} asks for {expected} of {' or '.join(FACTORS)}",
            "give a model in 16 bits",
        )
    return BlockScaled(numbers, factors, block)


@dataclass(frozen=True, slots=True)
class BlockScaled:
    """A matrix times the factor of each of its blocks; those at its lower and right edge may be
    cut.

    Or a stack of such matrices [E, R, C], with factors of their own.
    """

    numbers: Slices
    factors: Slices
    block: tuple[int, int]
    """Rows and columns that share a factor."""

    def get_shape(self) -> list[int]:
        return self.numbers.get_shape()

    def get_dtype(self) -> str:
        return "F32"

    def __getitem__(self, slices: Any) -> Tensor:
        shape = self.get_shape()
        *stack, rows, columns = _every_slice(slices, len(shape))
        factors = self.factors[(*stack, slice(None), slice(None))].float()
        for dimension, kept_slice, size in (
            (-2, rows, self.block[0]),
            (-1, columns, self.block[1]),
        ):
            indices = torch.arange(shape[dimension])[kept_slice]
            factors = factors.index_select(dimension, indices // size)
        return self.numbers[slices].float() * factors


@dataclass(frozen=True, slots=True)
class Mxfp4Stack:
    """The experts of a layer, which Transformers has transposed: E experts, R rows of C = 32 G
    columns as [E, C, R].
    """

    blocks: Slices
    """uint8 [E, R, G, 16]"""
    exponents: Slices
    """uint8 [E, R, G]"""

    def get_shape(self) -> list[int]:
        experts, rows, groups, num_bytes = self.blocks.get_shape()
        # Two numbers of four bits a byte
        return [experts, groups * num_bytes * 2, rows]

    def get_dtype(self) -> str:
        return "F32"

    def __getitem__(self, slices: Any) -> Tensor:
        shape = self.get_shape()
        experts, columns, rows = _every_slice(slices, len(shape))
        expert_indices = range(shape[0])[experts]
        dense_stack = torch.empty(
            len(expert_indices), len(range(shape[1])[columns]), len(range(shape[2])[rows])
        )
        # One by one, because steps between take many times the memory of the file.
        for index, expert in enumerate(expert_indices):
            dense_stack[index] = self._expert(expert, rows).T[columns]
        return dense_stack

    def _expert(self, expert: int, rows: slice) -> Tensor:
        """[R, C] of one expert."""
        packed = self.blocks[expert : expert + 1, rows, :, :][0].int()
        # Bias of an E8M0 exponent
        exponents = self.exponents[expert : expert + 1, rows, :][0].float() - 127
        table = torch.tensor([*FP4_NUMBERS, *(-number for number in FP4_NUMBERS)])
        # The lower half of a byte is the first number.
        numbers = table[torch.stack((packed & 15, packed >> 4), dim=-1)].flatten(2)
        return (numbers * torch.exp2(exponents)[..., None]).flatten(1)


def _every_slice(slices: Any, num_dimensions: int) -> list[slice]:
    """One slice for each dimension.

    `slices`: an ellipsis, or a tuple of slices of the first dimensions.
    """
    leading_slices = () if slices is Ellipsis else tuple(slices)
    return [*leading_slices, *[slice(None)] * (num_dimensions - len(leading_slices))]
