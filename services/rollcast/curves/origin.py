"""What was read of a source, and as what: told in one line, and in the JSON of every command."""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.scaling.law.curve import DEVICE_HOURS


@dataclass(frozen=True)
class Origin:
    """Attributes:
    format: by which name the source's format goes.
    compute: the column or quantity that the curve is drawn over.
    pass_rate: the column of the pass rates.
    unit: in which compute is counted.
    """

    format: str
    compute: str
    pass_rate: str
    unit: str

    def sentence(self) -> str:
        """In one line."""
        over = self.compute if self.compute == self.unit else f"{self.compute} ({self.unit})"
        return f"{self.format}: {self.pass_rate} over {over}"


OWN = Origin("run of Rollcast", "compute_device_hours", "pass_rate", DEVICE_HOURS)
