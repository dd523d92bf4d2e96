"""Models whose log-probs were seen to agree between trainer and generator, updates in flight
included: `proven_models.yaml`. docs/models.md shows the same table.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

TABLE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class ProvenModel:
    name: str
    architectures: tuple[str, ...]
    """Classes as config.json names them."""
    tiny_model: str
    """The random model that was run, by its name in testkit/tiny_model.py."""
    peculiar: str
    largest_gap: float
    """Largest difference of a token's two log-probs; of a mixture of experts with router replay."""
    engine: str
    """The generator's, and its device."""
    measured: date
    own_choices_share: float | None = None
    """Share of tokens within 1e-4 without router replay. None = the model has no routers."""

    @property
    def row(self) -> str:
        """The model's row in docs/models.md."""
        share = "" if self.own_choices_share is None else f"{100 * self.own_choices_share:.4g} %"
        cells = (
            self.name,
            self.peculiar,
            f"{self.largest_gap:.1e}".replace("e-0", "e-"),
            share,
            str(self.measured),
        )
        return f"| {' | '.join(cells)} |"

    @property
    def sentence(self) -> str:
        replay = "" if self.own_choices_share is None else " with router replay"
        return (
            f"{self.name} is proven: log-probs of a tiny random one agreed to "
            f"{self.largest_gap:.1e}{replay} "
            f"through updates in flight ({self.engine}, {self.measured})"
        )


@functools.cache
def proven_models() -> tuple[ProvenModel, ...]:
    return TypeAdapter(tuple[ProvenModel, ...]).validate_python(
        yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    )


def is_proven(model_config: Mapping[str, Any]) -> str:
    """A sentence about the architecture of a config.json; empty
    if no architecture is named there.
    """
    classes = model_config.get("architectures")
    if not isinstance(classes, list) or not classes or not isinstance(classes[0], str):
        return ""
    name = classes[0]
    for model in proven_models():
        if name in model.architectures:
            return model.sentence
    return (
        f"{name} is not proven: that trainer and generators give the same log-probs was never "
        "shown for it (docs/models.md); watch rollcast_logprob_gap from the first step"
    )
