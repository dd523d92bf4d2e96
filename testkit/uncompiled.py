"""Whether torch compiles: costly, and for most that tests show of no use.

A variable says so, which a fork missed.
"""

from __future__ import annotations

from collections.abc import Mapping

UNCOMPILED = "TORCHDYNAMO_DISABLE"
"""Torch's variable, of which "1" keeps it from compiling. It is read when a function is decorated:
at vLLM's import."""


def compile_as_told(environment: Mapping[str, str]) -> None:
    """Raised in a fork with another value of UNCOMPILED than torch has read."""
    if environment.get(UNCOMPILED) == "1":
        import torch

        torch.compiler.set_stance("force_eager")
