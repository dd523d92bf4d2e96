"""Survival, exactness and speed on one card, in parts, within given minutes. Parts that never ran
on a card come first, then those that remove most risk.

    # again, with the same folder: the parts that are missing
    python -m benchmarks.gpu --minutes 9 --out FOLDER
    python -m benchmarks.gpu [PART ...] [--small] [--part-minutes 5]
    # everything it needs, for a machine without a network
    python -m benchmarks.gpu.pack OUT.tar.xz

- wire-faults: members of wire 2 are killed and frozen over NCCL on one card; wire-tests:
  tests/weights on the card
- system: the demo's task, a generator killed in the middle, then stopped and resumed
- system-0.6b: a model of that size with random weights; system-nccl: services with weights over
  NCCL, and a kill
- system-lora: adapters of the demo's model; system-episodes: examples/calculator, with tools over
  several turns
- step-0.6b, -1.7b: whole steps with generator and trainer on the card, answers of up to 8,192
  tokens: tokens a second and GPU, and shares of the time
- generator: a generator's service against bare vLLM with the same requests, at 64 and 256 slots,
  and its rollouts in 8 bits: tokens a second, and how far log-probs are from float32
- publish: versions from a trainer to a generator over NCCL and over gloo, in GB/s
- head: the output head's log-probs and gradients against float64, time and memory
- exactness: the sharded policy's log-probs and gradients against plain Transformers in float32 on
  the CPU
- learner-0.6b, -1.7b, -4b: optimizer steps at the shapes of Qwen3, random weights: tokens/s, MFU,
  peak memory and the planner's; 4b with rollouts of up to 16k tokens. learner-4b-compiled: the same
  through torch.compile, as half of learner-0.6b: errors and speed decide trainer.compile: auto
- speculation: rollouts with drafts, updates in flight: log-probs against their replay, acceptance
- staging: weights to the staging buffers, between the card and the host, and into a generator's
  model
- group: a process group of one for weights: construction, broadcast, abort, and a peer that never
  comes

Each part is a process of its own, and its result is written when it ends. One that fails is
recorded with its reason and not tried again without --again; the exit status is then 1, as for a
missed target. A part is begun only if its expected time is left, and all its processes are ended
with it. Without --out results go to benchmarks/results, and every part is made again. Without a
card, or with --small, everything is tiny, and only --out keeps it.

Parts need this repository and its pinned packages; head, exactness and learner only torch,
transformers, pydantic, protobuf and structlog, and staging and group also httpx, starlette, uvicorn
and xxhash. All of them need psutil.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rollcast.local.devices import usable_gpus
from testkit.gpu.parts import PARTS, Part
from testkit.gpu.proof.order import Standing, expected_seconds, next_part, open_parts
from testkit.gpu.proof.part_process import Limit, run_part
from testkit.gpu.proof.results import file_name, keep, read_standing
from testkit.record import RESULTS, make_record

ENDING_SECONDS = 8.0
"""Kept back of --minutes: processes are ended and the last result is written in it."""


class Proof:
    """The parts of one call."""

    def __init__(self, parts: dict[str, Part], options: argparse.Namespace) -> None:
        self._parts = parts
        self._began = time.monotonic()
        self._minutes: float | None = options.minutes
        self._part_minutes: float = options.part_minutes
        self._is_small: bool = options.small or not usable_gpus()
        self._folder: Path | None = options.out
        self._standings = {
            name: read_standing(name, options.out, is_small=self._is_small, again=options.again)
            if options.out
            else Standing()
            for name in parts
        }
        self.all_well = all(one.state != "failed" for one in self._standings.values())

    def run(self) -> None:
        """Every part that is open and fits."""
        while (name := next_part(self._parts, self._standings, self._seconds_left())) is not None:
            self._say(
                f"{name} begins, about "
                f"{expected_seconds(self._parts[name], self._standings[name]):.0f} s"
            )
            figures = run_part(name, self._limit(), is_small=self._is_small)
            self._take(name, figures)
        for name in open_parts(self._parts, self._standings):
            if self._standings[name].state == "missing":
                self._say(
                    f"{name} is left for another call: it takes about "
                    f"{self._parts[name].expected_seconds:.0f} s"
                )

    def _seconds_left(self) -> float | None:
        if self._minutes is None:
            return None
        return 60 * self._minutes - ENDING_SECONDS - (time.monotonic() - self._began)

    def _limit(self) -> Limit:
        own = 60 * self._part_minutes
        left = self._seconds_left()
        return Limit(own) if left is None or own <= left else Limit(left, is_the_wholes=True)

    def _take(self, name: str, figures: dict[str, Any]) -> None:
        has_failed = "failed" in figures
        was_cut = "cut" in figures
        self.all_well &= not has_failed and not was_cut and all(figures.get("targets", {}).values())
        # A part that was cut is not tried again in this call: the time is over.
        self._standings[name] = Standing("failed" if has_failed else "done", figures["seconds"])
        if self._folder is not None:
            keep(name, self._folder, figures)
        elif not has_failed and not was_cut and not figures["small"]:
            keep(name, RESULTS, figures)
        print(json.dumps(make_record(file_name(name), figures)), flush=True)

    def _say(self, words: str) -> None:
        print(f"[{time.monotonic() - self._began:.0f} s] {words}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)}; default all")
    parser.add_argument(
        "--small", action="store_true", help="tiny shapes; always so without a card"
    )
    parser.add_argument("--minutes", type=float, help="limit of the whole command; default none")
    parser.add_argument("--part-minutes", type=float, default=5.0, help="limit of each part")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="results; parts that it has are not made again"
    )
    parser.add_argument(
        "--again", action="store_true", help="with --out: try parts again that failed"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"PART {unknown[0]!r}: is not known; choose from {', '.join(PARTS)}")
    for option in ("minutes", "part_minutes"):
        value = getattr(arguments, option)
        if value is not None and not 0 < value < float("inf"):
            parser.error(f"--{option.replace('_', '-')} {value:g}: must be above 0")
    # As Ctrl-C does: what a part started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    proof = Proof({name: PARTS[name] for name in arguments.parts or PARTS}, arguments)
    proof.run()
    return 0 if proof.all_well else 1


if __name__ == "__main__":
    sys.exit(main())
