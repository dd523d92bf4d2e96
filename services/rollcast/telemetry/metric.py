"""Description of a metric: `rollcast.telemetry.all_metrics` has all metrics."""

from dataclasses import dataclass
from typing import Literal

DURATION_BUCKETS_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Metric:
    """One metric family: a histogram if it has buckets, a counter if its name ends in `_total`,
    else a gauge.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["gauge", "counter", "histogram"]:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"
