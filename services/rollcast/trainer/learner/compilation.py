"""Whether decoder layers and output head are compiled: the decision of trainer.compile.

`auto` follows measurements. `compilation.json` has a row for each kind of GPU on which the parts
learner-* of `benchmarks.gpu` made the same steps with and without the compiler; `python -m
documents` writes it from benchmarks/results.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import TypeAdapter

from rollcast.trainer.learner.layers import why_not_compiled

TABLE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True, slots=True)
class CompiledCard:
    """Compiled steps against the same steps uncompiled, on one kind of GPU."""

    card: str
    """Name that the driver reports."""
    results: tuple[str, ...]
    """Files in benchmarks/results, without `.json`."""
    is_exact: bool
    """Whether log-probs and gradients of all pairs are as near to float32 as uncompiled ones."""
    speed_ratio: float
    """Seconds of a step uncompiled over compiled; the smallest of all pairs."""
    warm_up_seconds: float
    """How much longer the first step takes; the largest."""


def measured_cards() -> tuple[CompiledCard, ...]:
    return TypeAdapter(tuple[CompiledCard, ...]).validate_json(TABLE.read_bytes())


def decide(
    setting: Literal["auto"] | bool, causal_lm: Any, device: torch.device
) -> tuple[bool, str]:
    """Whether this model is compiled on `device`, and a sentence that says so."""
    if setting != "auto":
        return setting, f"trainer.compile = {str(setting).lower()}"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    compiles, reason = decide_automatically(why_not_compiled(causal_lm), name, measured_cards())
    return compiles, f"trainer.compile = auto: {'on' if compiles else 'off'}, since {reason}"


def decide_automatically(
    obstacle: str | None, name: str | None, cards: tuple[CompiledCard, ...]
) -> tuple[bool, str]:
    """The decision of `auto` and its reason. `obstacle`: why the model cannot be compiled, if it
    cannot. `name`: of the GPU; None on a CPU.
    """
    if name is None:
        return False, "there is no GPU"
    card = next((card for card in cards if card.card == name), None)
    if card is None:
        return False, f"compiled steps were not measured on an {name}"
    source = " and ".join(card.results)
    if not card.is_exact:
        return False, f"compiled steps on an {name} were less exact ({source})"
    # Less would not be worth the minutes of the first step.
    if card.speed_ratio < 1.05:
        return (
            False,
            f"compiled steps on an {name} were {card.speed_ratio:.2f} times as fast ({source})",
        )
    if obstacle is not None:
        return False, obstacle
    if not any(map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))):
        return False, "there is no C compiler on the path"
    return True, (
        f"on an {name} compiled steps were exact and {card.speed_ratio:.2f} times as fast or more "
        f"({source}); each code is compiled once for all lengths, and the first step takes about "
        f"{card.warm_up_seconds:.0f} s longer"
    )
