"""The table by which `trainer.compile: auto` decides, from the results of `benchmarks.gpu
learner-*`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from testkit.record import RESULTS

Row = dict[str, Any]
ROUNDING = {"logprob_error_mean": 1.25, "gradient_error": 1.25, "logprob_error_max": 2.0}
"""How much larger an error may be compiled: sums are rounded at other places. One token alone
varies more."""


def compilation_table(folder: Path = RESULTS) -> str:
    """One row for each kind of GPU with a pair of variants that differ in the compiler alone."""
    rows: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for path in sorted(folder.glob("gpu-learner-*.json")):
        figures = json.loads(path.read_text())["figures"]
        for row in figures["rows"]:
            if "logprob_error_max" in row and not figures["small"]:
                by_variant = rows[figures["card"]["name"], figures["shape"]]
                by_variant[row["variant"]] = row | {"result": path.stem}
    pairs: dict[str, list[tuple[Row, Row]]] = defaultdict(list)
    for (card, _), by_variant in rows.items():
        for variant, row in by_variant.items():
            ways = variant.split(", ")
            uncompiled = ", ".join(way for way in ways if way != "compiled") or "plain"
            if "compiled" in ways and uncompiled in by_variant:
                pairs[card].append((by_variant[uncompiled], row))
    return json.dumps([_card(name, pairs[name]) for name in sorted(pairs)], indent=1) + "\n"


def _card(name: str, pairs: list[tuple[Row, Row]]) -> Row:
    return {
        "card": name,
        "results": sorted({row["result"] for pair in pairs for row in pair}),
        "is_exact": all(
            compiled["all_applied"] and compiled[error] <= factor * plain[error] + 1e-6
            for plain, compiled in pairs
            for error, factor in ROUNDING.items()
        ),
        "speed_ratio": min(
            round(plain["step_seconds_median"] / compiled["step_seconds_median"], 3)
            for plain, compiled in pairs
        ),
        "warm_up_seconds": max(
            round(compiled["first_seconds"] - plain["first_seconds"], 1)
            for plain, compiled in pairs
        ),
    }
