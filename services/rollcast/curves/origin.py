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


OWN = Origin("run of Rollcast", "compute_device_hours", "pass_rate", DEVICE_HOURS)
