"""What one card does with the learner's own code, in parts of at most five minutes; writes results/gpu-PART.json.

    python -m benchmarks.gpu [PART ...] [--small] [--minutes 5]

- head: the output head's log-probs and gradients against float64, time and memory
- exactness: the sharded policy's log-probs and gradients against plain Transformers in float32 on the CPU
- staging: weights to the staging buffers, between the card and the host, and into a generator's model
- learner-0.6b, -1.7b, -4b: optimizer steps at the shapes of Qwen3, random weights: tokens/s, MFU, peak memory next to
  what the planner says; 4b with rollouts of up to 16k tokens. learner-4b-compiled: the same through torch.compile
- group: a process group of one for weights: construction, broadcast, abort, and a peer that never comes

Each part is a process of its own and prints one line of JSON. One that fails says why in a sentence, and the others go
on; the exit status is then 1, as for a missed target. Needs this repository, torch, transformers, pydantic,
protobuf and structlog; staging and group also httpx, starlette, uvicorn and xxhash. Without a card, or with --small,
everything is tiny, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from testkit.gpu.parts import PARTS
from testkit.record import make_record, write_result

REASON_CHARACTERS = 300


def run_part(name: str, *, is_small: bool, minutes: float) -> dict[str, Any]:
    """Figures of a part, or {"failed": why}."""
    command = [sys.executable, "-m", "testkit.gpu.parts", name, *(["--small"] if is_small else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * minutes, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"{name} took longer than {minutes:g} minutes"}
    sys.stderr.write(done.stderr)
    if done.returncode != 0 or not done.stdout.strip():
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:REASON_CHARACTERS]
        return {"failed": f"{name} ended with exit code {done.returncode}: {reason}"}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"{', '.join(PARTS)}; default all")
    parser.add_argument("--small", action="store_true", help="tiny shapes; always so without a card")
    parser.add_argument("--minutes", type=float, default=5.0, help="limit of each part")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"PART {unknown[0]!r}: is not known; choose from {', '.join(PARTS)}")
    all_well = True
    for name in arguments.parts or PARTS:
        figures = run_part(name, is_small=arguments.small, minutes=arguments.minutes)
        has_failed = "failed" in figures
        all_well &= not has_failed and all(figures.get("targets", {}).values())
        if not has_failed and not figures["small"]:
            write_result(f"gpu-{name}", figures)
        print(json.dumps(make_record(f"gpu-{name}", figures)), flush=True)
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
