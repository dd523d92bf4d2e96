"""What a source was read as. Every command prints it, in one line or in its JSON."""

from dataclasses import dataclass

from rollcast.scaling.law.curve import DEVICE_HOURS


@dataclass(frozen=True)
class Origin:
    """Attributes:
    format: the name of the source's format.
    compute: the column or quantity that the curve is drawn over.
    pass_rate: the column of the pass rates.
    unit: in which compute is counted.
    """

    format: str
    compute: str
    pass_rate: str
    unit: str

    def sentence(self) -> str:
        """One line for the user."""
        over = self.compute if self.compute == self.unit else f"{self.compute} ({self.unit})"
        return f"{self.format}: {self.pass_rate} over {over}"


OWN = Origin("run of Rollcast", "compute_device_hours", "pass_rate", DEVICE_HOURS)
