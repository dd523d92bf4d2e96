"""`python -m benchmarks.chaos_episodes`: generators are killed, frozen and restarted while
environments misbehave.

A real trainer, Redis and two generators with vLLM on a CPU train a tiny model on episodes with
tools. Half of the prompts have a world that raises, hangs, dies, floods, leaks or gives no reward
(testkit/system/misbehaving_world.py). After all faults the audit reads the books, the groups on the
wire and what is left on the machine. Writes results/chaos_episodes.json; exit status 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any, get_args

from rollcast.rollouts.base import MAX_FAILURES
from testkit.record import write_result
from testkit.system.chaos import LAG, Chaos, Fault
from testkit.system.misbehaving_world import NAMED


def judge(figures: dict[str, Any]) -> dict[str, bool]:
    """What `Chaos.run` does not check itself.

    It raises if a task or an episode is lost or used twice.
    """
    return {
        "no task is given up": figures["tasks_by_outcome"].get("dead", 0) == 0,
        "a task that is given up has failed three times": set(figures["failures_of_tasks_given_up"])
        <= {MAX_FAILURES},
        "every fault cost tasks, and they are redone": figures["tasks_redone"] > 0,
        "no token over the staleness bound": figures["oldest_token_trained"] <= LAG,
        "failures of each kind are named": set(NAMED) <= set(figures["episodes_given_up"]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos_episodes", description="Episodes under faults."
    )
    parser.add_argument(
        "--faults", type=int, default=12, help="how many; as many of each kind, in random order"
    )
    parser.add_argument("--seed", type=int, default=0, help="of their order")
    arguments = parser.parse_args()
    kinds: tuple[Fault, ...] = get_args(Fault)
    faults = [kinds[number % len(kinds)] for number in range(arguments.faults)]
    random.Random(arguments.seed).shuffle(faults)
    with tempfile.TemporaryDirectory(prefix="rollcast-chaos-") as folder:
        figures = Chaos(Path(folder)).run(faults)
    figures["targets"] = judge(figures)
    print(json.dumps(figures, indent=1))
    for target, met in figures["targets"].items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("chaos_episodes", figures))
    return 0 if all(figures["targets"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
