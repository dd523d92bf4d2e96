"""The parts, and the process of one: `python -m testkit.gpu.parts PART [--small]`; JSON is its last line."""

from __future__ import annotations

import argparse
import json
import traceback
from importlib import import_module
from typing import Any

from testkit.record import strict

PARTS = {
    "head": "head",
    "exactness": "exactness",
    "staging": "staging",
    "learner-0.6b": "learner",
    "learner-1.7b": "learner",
    "learner-4b": "learner",
    "learner-4b-compiled": "learner",
    "group": "group",
}
"""Part -> its module; imported in the part's own process, torch with it."""
COLLECTIVE_SECONDS = 60.0


def run(name: str, *, is_small: bool) -> dict[str, Any]:
    """Measure as the only rank."""
    from rollcast.trainer.learner.ranks import join_ranks
    from testkit.gpu.card import describe_card, sentence_of

    ranks = join_ranks(timeout_seconds=COLLECTIVE_SECONDS)
    is_small = is_small or ranks.device.type == "cpu"
    about = {"small": is_small, "card": describe_card(ranks.device)}
    try:
        measured: dict[str, Any] = import_module(f"testkit.gpu.{PARTS[name]}").measure(name, ranks, is_small=is_small)
        return about | measured
    except Exception as error:  # every error is reported, and the other parts go on
        traceback.print_exc()
        return about | {"failed": f"{name}: {sentence_of(error)}"}
    finally:
        ranks.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    figures = run(arguments.part, is_small=arguments.small)
    print(json.dumps(strict(figures)))


if __name__ == "__main__":
    main()
