"""Stands in for `rollcast up`: what it writes and serves, with a generator that can be killed.

`STAND_IN` of the environment names what it does wrong: waits (no step while a generator is away),
stays-away (a killed generator is not started again), forgets (resumes from the start), twice (a
task is settled twice).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

FAULTS = os.environ.get("STAND_IN", "").split(",")
FOLDER = Path("runs/proof")
GENERATOR = ["sh", "-c", "sleep 600", "generator", "--name", "generator-1"]
AWAY_SECONDS = 2.0


def add(file: str, **line: Any) -> None:
    with (FOLDER / file).open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def serve(state: dict[str, int]) -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'rollcast_generators{{state="joined"}} {state["joined"]}\n'.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    Thread(target=server.serve_forever, daemon=True).start()
    (FOLDER / "ports").mkdir(exist_ok=True)
    (FOLDER / "ports" / "trainer").write_text(str(server.server_port))


def begin(*, is_resumed: bool) -> int:
    """The step from which this incarnation continues."""
    if not is_resumed:
        add("incarnations.jsonl", incarnation=1, started_from=0)
        return 0
    last = json.loads((FOLDER / "steps.jsonl").read_text().splitlines()[-1])["step"]
    start = 0 if "forgets" in FAULTS else last
    add("tasks.jsonl", what="resumed", version=f"1.{last}")
    add("incarnations.jsonl", incarnation=2, started_from=start)
    return int(last)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    is_resumed = "--resume" in sys.argv
    step = begin(is_resumed=is_resumed)
    state = {"joined": 2}
    serve(state)
    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
    generator = subprocess.Popen(GENERATOR)
    died_at = 0.0
    returned_at = 0.0
    while not stopping:
        time.sleep(0.05)
        if generator.poll() is not None:
            died_at = died_at or time.monotonic()
            state["joined"] = 1
            if time.monotonic() > died_at + AWAY_SECONDS and "stays-away" not in FAULTS:
                generator = subprocess.Popen(GENERATOR)
                state["joined"] = 2
                returned_at = time.monotonic()
        if (
            "waits" in FAULTS
            and died_at
            and (not returned_at or time.monotonic() < returned_at + AWAY_SECONDS)
        ):
            continue
        step += 1
        task = 1 if "twice" in FAULTS else step
        add("tasks.jsonl", what="dispatched", tasks=[step])
        add("tasks.jsonl", what="used", tasks=[task])
        add("tasks.jsonl", what="step", step=step)
        add("steps.jsonl", step=step, at=time.time(), **dict.fromkeys(MEASURED, 0.5))
    generator.kill()
    add("tasks.jsonl", what="checkpoint", version=f"1.{step}")
    sys.exit(130)


MEASURED = (
    "trained_tokens",
    "update_seconds",
    "reward_mean",
    "truncation_ratio",
    "logprob_gap_mean",
    "logprob_gap_max",
)

if __name__ == "__main__":
    main()
