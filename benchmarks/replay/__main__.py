"""`python -m benchmarks.replay`: how soon after an evaluation the page shows its forecast, through Prometheus.

A recorded run at 60 times its pace, scraped by a real Prometheus that is killed and started again in between, read by
the forecaster, shown in a real browser. Writes results/replay.json; exit status 1 where an evaluation took longer than
one scrape interval.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.record import write_result
from tests.forecaster.replay import SCRAPE_SECONDS, replay


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        replayed = replay(Path(folder))
    lags = [round(lag, 2) for lag in replayed.lag_seconds[1:]]
    targets = {"every forecast on the page within one scrape interval": replayed.in_time == len(lags)}
    figures = {
        "scrape_seconds": SCRAPE_SECONDS,
        "lag_seconds": lags,
        "lag_seconds_median": statistics.median(lags),
        "in_time": replayed.in_time,
        "of": len(lags),
        "targets": targets,
    }
    for key, value in figures.items():
        print(f"{key:20} {value}")
    print(write_result("replay", figures))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
