"""A new user's first hour, played in a pseudo-terminal of 80 columns and 24 lines, with every command's time.

    python -m benchmarks.first_hour [--transcript docs/first-hour.md]

The demo's model and a JSONL of twenty rows. `init` writes a run file, `config check` reads it. One of a dozen lines,
for two cores, goes on: `try`, `up`, Ctrl-C in the start and later, the resume that it prints, `show` from a
second terminal and at the end, `fit`, a second run, `compare`.
Writes results/first_hour.json, and the transcript where it is asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from rollcast.local.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import STEPS
from rollcast.tasks.arithmetic import prompt_text
from testkit.record import write_result
from testkit.terminal import Terminal

ROLLCAST = Path(sys.executable).with_name("rollcast")
SUMS = [(10 * a + b, 7 * b + a) for a in range(4) for b in range(5)]
RUN_FILE = """\
run: {name}
model: {{path: base-model, dtype: float32}}
tasks:
  dataset: {{kind: jsonl, name: rows, path: rows.jsonl, verifier: arithmetic}}
  evaluation: {{rollouts_per_prompt: 16, every_steps: 3}}
recipe:
  rollouts_per_prompt: 8
  optimizer: {{learning_rate: 5.0e-5, warmup_steps: 5}}
generator: {{slots: 64, block_size: 32, cpu_kv_cache_gib: 1, drain_seconds: 2}}
trainer: {{tokens_per_micro_batch: 4096, threads: 1}}
seed: {seed}
budget: {{steps: {steps}}}
"""
STEPS_IN_ALL, STOP_AT = 24, 5
PATIENCE = 600.0


class FirstHour:
    """One user's folder, and what was seen there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.times: list[dict[str, Any]] = []
        self.pages: list[str] = []
        model = ensure_base_model(BaseModel(), lambda share: None)
        (folder / "base-model").symlink_to(model)
        rows = [json.dumps({"prompt": prompt_text(a, b), "answer": str(a + b)}) for a, b in SUMS]
        (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
        for name, seed in (("mine", 0), ("other", 1)):
            text = RUN_FILE.format(name=name, seed=seed, steps=STEPS_IN_ALL)
            (folder / f"{name}.yaml").write_text(text)

    def open(self, command: str) -> Terminal:
        path = f"{ROLLCAST.parent}{os.pathsep}{os.environ['PATH']}"
        return Terminal(shlex.split(command), self.folder, {"PATH": path, "HF_HUB_OFFLINE": "1"})

    def steps(self, run: str) -> int:
        file = self.folder / "runs" / run / STEPS
        return len(file.read_text().splitlines()) if file.exists() else 0

    def note(self, command: str, terminal: Terminal, what: str, **more: Any) -> None:
        """`what`: the moment at which the screen is taken down."""
        shown = self.plain(terminal.screen())
        self.times.append({"command": self.plain(command), "moment": what, "seconds": terminal.seconds(), **more})
        self.pages.append(
            f"    $ {self.plain(command)}\n\n{what}, after {terminal.seconds()} s:\n\n{_indented(shown)}\n"
        )

    def ask(self, command: str, status: int = 0) -> None:
        """A command that answers and ends."""
        with self.open(command) as terminal:
            ended = terminal.end(PATIENCE)
            assert ended == status, terminal.said()
            self.times.append({"command": self.plain(command), "moment": "answered", "seconds": terminal.seconds()})
            said = self.plain(terminal.said())
            self.pages.append(
                f"    $ {self.plain(command)}\n\nanswered after {terminal.seconds()} s:\n\n{_indented(said)}\n"
            )

    def stop_in_the_start(self) -> None:
        command = "rollcast up --config mine.yaml"
        with self.open(command) as terminal:
            terminal.wait(lambda: "engine starts" in terminal.screen(), PATIENCE)
            terminal.wait(lambda: terminal.seconds() > 4, PATIENCE)
            self.note(command, terminal, "The start, when Ctrl-C is typed")
            self._stop(command, terminal)

    def run_and_stop(self) -> str:
        """Returns the command that it prints."""
        command = "rollcast up --config mine.yaml"
        with self.open(command) as terminal:
            terminal.wait(lambda: self.steps("mine") >= 1, PATIENCE)
            self.times.append({"command": command, "moment": "first step", "seconds": terminal.seconds()})
            terminal.wait(lambda: self.steps("mine") >= STOP_AT, PATIENCE)
            self.note(command, terminal, "Under way, when Ctrl-C is typed")
            return self._stop(command, terminal)

    def _stop(self, command: str, terminal: Terminal) -> str:
        typed = terminal.seconds()
        terminal.ctrl_c()
        assert terminal.end(PATIENCE) == 130, terminal.said()
        took = round(terminal.seconds() - typed, 1)
        self.note(command, terminal, f"Ended {took} s after Ctrl-C", stopped_in_seconds=took)
        said = terminal.said().replace("\n", "")
        return said.partition("continue with: ")[2]

    def resume(self, command: str) -> None:
        with self.open(command) as terminal:
            terminal.wait(lambda: self.steps("mine") >= STEPS_IN_ALL * 3 // 4, PATIENCE)
            self.note(command, terminal, "Resumed, at three quarters")
            self.ask("rollcast show runs/mine")
            assert terminal.end(PATIENCE) == 0, terminal.said()
            self.note(command, terminal, "Finished")

    def plain(self, text: str) -> str:
        return text.replace(f"{ROLLCAST}", "rollcast").replace(f"{self.folder}", "~/first-hour")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def play(user: FirstHour) -> None:
    user.ask("rollcast init first.yaml --model base-model --data rows.jsonl --verifier arithmetic --budget 24")
    user.ask("rollcast config check first.yaml")
    user.ask("rollcast config check mine.yaml")
    user.ask("rollcast try --config mine.yaml --prompts 2")
    user.stop_in_the_start()
    again = user.run_and_stop()
    user.resume(again)
    user.ask("rollcast show runs/mine")
    user.ask("rollcast fit runs/mine")
    with user.open("rollcast up --config other.yaml") as terminal:
        assert terminal.end(PATIENCE) == 0, terminal.said()
        user.note("rollcast up --config other.yaml", terminal, "A second run with another seed, finished")
    user.ask("rollcast compare runs/mine runs/other")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transcript", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        user = FirstHour(Path(name).resolve())
        try:
            play(user)
        finally:
            print("\n".join(user.pages))
    print(write_result("first_hour", {"steps": STEPS_IN_ALL, "commands": user.times}))
    if arguments.transcript:
        files = f"`mine.yaml`:\n\n{_indented(RUN_FILE.format(name='mine', seed=0, steps=STEPS_IN_ALL))}\n"
        head = "# The first hour\n\nWritten by `python -m benchmarks.first_hour --transcript docs/first-hour.md`.\n"
        arguments.transcript.write_text("\n".join([head, files, *user.pages]))


if __name__ == "__main__":
    main()
