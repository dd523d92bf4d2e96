"""How torch allocates GPU memory in the trainer's processes."""

from collections.abc import MutableMapping

ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that torch reads, the second under its earlier name. A user who sets one has
decided."""
EXPANDABLE_SEGMENTS = "expandable_segments:True"
"""Micro-batches have changing lengths. With segments of a fixed size the allocator keeps many that
no later length fits, and runs out of memory with gigabytes unused. Without a GPU it has no
effect."""


def use_expandable_segments(environment: MutableMapping[str, str]) -> None:
    """Call it before torch is imported."""
    if not any(name in environment for name in ALLOCATOR_VARIABLES):
        environment[ALLOCATOR_VARIABLES[0]] = EXPANDABLE_SEGMENTS
