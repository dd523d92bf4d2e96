"""A simulated run that has come to rest, and an autoscaler that is restarted in the middle of a
fault of it.
"""

from __future__ import annotations

from pathlib import Path

from tests.autoscaler.simulated_run import FEED, ScaledRun

SETTLED, HOUR = 3_600.0, 3_600.0
"""When a run that began with too few generators has found how many do; seconds."""
FAULTS = ("the trainer loads", "no prometheus", "a quota", "spot nodes")


def settled(run: ScaledRun) -> int:
    """Let the run come to rest; the number that it came to."""
    run.until(SETTLED)
    found = run.cluster.requested_replicas
    assert FEED <= found <= FEED + 2
    return found


def check_restart_during(fault: str, mode: str, folder: Path) -> None:
    """What the new process finds then is not the run as it is."""
    with ScaledRun(mode, 5, folder, trainer_away=600.0) as run:
        before = settled(run)
        if fault == "the trainer loads":
            run.restart_trainer()
        elif fault == "no prometheus":
            run.pages.away = "http://prometheus:9090 does not answer"
        elif fault == "a quota":
            run.cluster.granted = 5
            run.cluster.settle()
        else:
            run.cluster.take_away(4)
        run.until(SETTLED + 30.0)
        run.stop_autoscaler()
        run.start_autoscaler()
        run.until(SETTLED + 1_800.0)
        if fault == "no prometheus":
            run.pages.away = None
        run.cluster.granted = 64
        run.cluster.settle()
        run.until(SETTLED + HOUR)
        assert min(run.asked_between(SETTLED, run.now)) >= before
