"""The figures and targets of all runs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from testkit.chaos.faults import HEARTBEAT_SECONDS, LEFT_OUT
from testkit.chaos.run_kinds import LAG

CLAIMED_SECONDS = 10.0
"""A killed generator's stream breaks immediately; its tasks then wait for a free slot."""
FROZEN_SECONDS = HEARTBEAT_SECONDS + CLAIMED_SECONDS
REDIS_SECONDS = 5.0
"""The longest back-off of a client, and a little."""
LIMITS = {
    "killed: tasks claimed": CLAIMED_SECONDS,
    "frozen: tasks claimed": FROZEN_SECONDS,
    "Redis back": REDIS_SECONDS,
}


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    faults = [fault | {"run": record["run"]} for record in records for fault in record["faults"]]
    took = [fault for fault in faults if fault["took"]]
    figures: dict[str, Any] = {
        "runs": len(records),
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "steps": sum(record.get("steps", 0) for record in records),
        "faults": len(took),
        "faults_by_kind": dict(Counter(fault["kind"] for fault in took)),
        "faults_by_target": dict(Counter(fault["target"] for fault in took)),
        "faults_by_phase": dict(Counter(fault["phase"] for fault in took if fault["phase"])),
        "attempts_without_effect": sum(fault["attempts"] for fault in faults) - len(took),
        "faults_not_made": [
            *(
                f"{fault['kind']} {fault['target']} {fault['phase']}".strip()
                for fault in faults
                if not fault["took"]
            ),
            *(name for record in records for name in record["not made"]),
        ],
        "lost": _violations(records, "lost"),
        "used_twice": _violations(records, "used_twice"),
        "stale": _violations(records, "stale"),
        "hangs": [
            *_violations(records, "hangs"),
            *(
                {"run": record["run"], "event": record["hang"]}
                for record in records
                if record["hang"]
            ),
        ],
        "disagreements": _violations(records, "disagreements"),
        "crashes": [
            {"run": record["run"], **end}
            for record in records
            for end in record["ends"]
            if end["is_crash"]
        ],
        "failed": [
            {"run": record["run"], "why": record["failed"]}
            for record in records
            if "failed" in record
        ],
        "orderly_ends_after_faults": sum(
            not end["is_struck"] and not end["is_crash"]
            for record in records
            for end in record["ends"]
        ),
        "max_staleness": max((record.get("max_staleness", 0) for record in records), default=0),
        "given_up": dict(_added(record.get("given_up", {}) for record in records)),
        "tasks_by_outcome": dict(_added(record.get("outcomes", {}) for record in records)),
        "trainer_outages": sum(len(record.get("trainer_outages", ())) for record in records),
        "work_after_trainer_outages": dict(
            _added(outage for record in records for outage in record.get("trainer_outages", ()))
        ),
        "seconds_measured": _measured(took),
        "episodes": [record["episodes"] for record in records if "episodes" in record],
        "left_out": LEFT_OUT,
        "rows": [_row(record) for record in records],
    }
    figures["targets"] = judge(figures)
    return figures


def judge(figures: dict[str, Any]) -> dict[str, bool]:
    measured = figures["seconds_measured"]
    outages = figures["work_after_trainer_outages"]
    return {
        "no task is lost": not figures["lost"],
        "no task is used twice": not figures["used_twice"],
        f"no token is older than {LAG} steps": not figures["stale"],
        "no hang": not figures["hangs"],
        "no crash of our own": not figures["crashes"] and not figures["failed"],
        "metrics and files agree": not figures["disagreements"],
        "no task is given up but after losses by these faults": figures["given_up"].get(
            "otherwise", 0
        )
        == 0,
        "after an outage of the trainer only work since the checkpoint is made again": outages.get(
            "made again", 0
        )
        <= outages.get("dispatched since the checkpoint", 0),
        "each kind of failure of an environment is named": all(
            not episodes["kinds_not_seen"] for episodes in figures["episodes"]
        ),
        **{
            f"{name} within {limit:.0f} s": measured[name]["longest"] <= limit
            for name, limit in LIMITS.items()
            if name in measured
        },
    }


def _violations(records: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        {"run": record["run"], "of": value}
        for record in records
        for value in record.get("violations", {}).get(kind, ())
    ]


def _added(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total


def _measured(faults: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By name of the time: how often it was measured, its median and its longest value."""
    figures = {}
    for name in LIMITS:
        values = sorted(
            fault["measured"][name] for fault in faults if name in fault.get("measured", {})
        )
        if values:
            median = values[len(values) // 2]
            figures[name] = {"times": len(values), "median": median, "longest": values[-1]}
    return figures


def _row(record: dict[str, Any]) -> dict[str, Any]:
    faults = [
        {key: value for key, value in fault.items() if key not in ("held", "began", "ended")}
        for fault in record["faults"]
    ]
    return {"run": record["run"], "seconds": record["seconds"], "faults": faults}
