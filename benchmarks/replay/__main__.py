"""`python -m benchmarks.replay`: how soon after an evaluation the page shows its forecast, through
Prometheus.

A recorded run at 60 times its pace, scraped by a real Prometheus that is killed and started again
in between, read by the forecaster, shown in a real browser. The first part of an evaluation's way,
from the trainer into Prometheus, takes up to one scrape interval whoever reads it; the rest is the
forecaster's and the page's. Then a hundred runs through one Prometheus: what reading it so often
costs. Writes results/replay.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.replay.crowd import crowd
from testkit.forecaster.replay import BEFORE, SCRAPE_SECONDS, UNTIL, Replay, replay
from testkit.record import write_result


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        figures = lags(replay(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        figures |= crowd(Path(folder))
    targets = judge(figures)
    for key, value in figures.items():
        print(f"{key:36} {value}")
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("replay", figures | {"targets": targets}))
    return 0 if all(targets.values()) else 1


def lags(replayed: Replay) -> dict[str, Any]:
    """By evaluation but the first, which makes no forecast."""
    ways = list(zip(replayed.exported, replayed.scraped, replayed.shown_times, strict=True))
    while_up = [way for place, way in enumerate(ways) if place >= 1 and not BEFORE <= place < UNTIL]
    to_page = [shown - exported for exported, _, shown in while_up]
    scraped_to_page = [shown - scraped for _, scraped, shown in ways[1:]]
    return {
        "scrape_seconds": SCRAPE_SECONDS,
        "scraped_to_page_seconds": [round(lag, 2) for lag in scraped_to_page],
        "scraped_to_page_seconds_median": round(statistics.median(scraped_to_page), 2),
        "scraped_to_page_seconds_longest": round(max(scraped_to_page), 2),
        "while_prometheus_is_up": {
            "evaluation_to_scraped_seconds": [
                round(scraped - exported, 2) for exported, scraped, _ in while_up
            ],
            "evaluation_to_page_seconds": [round(lag, 2) for lag in to_page],
            "evaluation_to_page_seconds_median": round(statistics.median(to_page), 2),
        },
    }


def judge(figures: dict[str, Any]) -> dict[str, bool]:
    median = figures["while_prometheus_is_up"]["evaluation_to_page_seconds_median"]
    return {
        (
            "every evaluation on the page within one scrape interval, the wait for its scrape "
            "included"
        ): (max(figures["while_prometheus_is_up"]["evaluation_to_page_seconds"]) <= SCRAPE_SECONDS),
        "every evaluation on the page within one scrape interval of its scrape": (
            figures["scraped_to_page_seconds_longest"] <= SCRAPE_SECONDS
        ),
        "median from evaluation to page at most one scrape interval": median <= SCRAPE_SECONDS,
        "100 runs: every one refitted within one scrape interval of its scrape": (
            figures["hundred_runs"]["scraped_to_forecast_seconds_longest"]
            <= figures["hundred_runs"]["scrape_seconds"]
        ),
        "100 runs: at most a tenth of a core": figures["hundred_runs"]["share_of_a_core"] <= 0.10,
    }


if __name__ == "__main__":
    sys.exit(main())
