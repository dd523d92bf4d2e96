"""The parts in the order of the risk they remove, and the process of one: `python -m
testkit.gpu.parts PART [--small]`.

Figures are printed as lines of JSON, a later line added to the earlier ones: what a part reports
early is kept if it is ended before its end.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from rollcast.trainer.allocator import use_expandable_segments
from testkit.record import strict


@dataclass(frozen=True, slots=True)
class Part:
    """A measurement that is a process of its own."""

    module: str
    """Name of the module in testkit.gpu; imported in the part's own process, torch with it."""
    expected_seconds: float
    """On one H100 or H200. The part is not begun if less time is left."""
    starts_processes: bool = False
    """Whether the part measures processes that it starts, and uses no device itself."""


PARTS: Mapping[str, Part] = {
    "wire-faults": Part("wire_faults", 210, starts_processes=True),
    "learner-0.6b": Part("learner", 120),
    "step-0.6b": Part("whole_step", 330, starts_processes=True),
    "generator": Part("generator", 300, starts_processes=True),
    "speculation": Part("speculation", 240, starts_processes=True),
    "wire-tests": Part("wire_tests", 70, starts_processes=True),
    "system": Part("system", 250, starts_processes=True),
    "head": Part("head", 20),
    "exactness": Part("exactness", 25),
    "learner-4b": Part("learner", 120),
    "step-1.7b": Part("whole_step", 460, starts_processes=True),
    "publish": Part("publishing", 50, starts_processes=True),
    "learner-4b-compiled": Part("learner", 220),
    "system-lora": Part("system_today", 210, starts_processes=True),
    "system-episodes": Part("system_today", 210, starts_processes=True),
    "system-0.6b": Part("system", 160, starts_processes=True),
    "learner-1.7b": Part("learner", 200),
    "system-nccl": Part("system_nccl", 150, starts_processes=True),
    "staging": Part("staging", 30),
    "group": Part("group", 30),
}
"""First come those that never ran on a card: the memory after faults, the variants of a learner,
whole steps, a generator alone. The seconds are estimates."""


def run(name: str, *, is_small: bool) -> dict[str, Any]:
    """Measure; an error becomes {"failed": sentence}."""
    from rollcast.trainer.learner.ranks import join_ranks
    from testkit.gpu.card import describe_card, first_card

    gpu_part = PARTS[name]
    measure = import_module(f"testkit.gpu.{gpu_part.module}").measure
    if gpu_part.starts_processes:
        card = first_card()
        is_small = is_small or card is None
        return {"small": is_small, "card": card} | _figures(
            name, partial(measure, name, is_small=is_small)
        )
    # Seconds for one collective
    ranks = join_ranks(timeout_seconds=60.0)
    try:
        is_small = is_small or ranks.device.type == "cpu"
        about = {"small": is_small, "card": describe_card(ranks.device)}
        return about | _figures(name, partial(measure, name, ranks, is_small=is_small))
    finally:
        ranks.leave()


def _figures(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from testkit.gpu.card import describe_error

    try:
        return measure()
    except Exception as error:  # every error is reported, and the other parts go on
        traceback.print_exc()
        return {"failed": f"{name}: {describe_error(error)}"}


def report(figures: Mapping[str, Any]) -> None:
    """Print figures, the last or some before them."""
    print(json.dumps(strict(dict(figures))), flush=True)


def main() -> None:
    # As the trainer does, and before torch is imported.
    use_expandable_segments(os.environ)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    report(run(arguments.part, is_small=arguments.small))


if __name__ == "__main__":
    main()
