"""A new user's first hour, played in a pseudo-terminal of 80 columns and 24 lines, with every
command's time.

    python -m benchmarks.first_hour [--transcript lab/first-hour.md]

The demo's model and a JSONL of twenty rows. `init` writes the run file that everything else works
with: `config check`, `try`, `up`, Ctrl-C in the start and later, the resume that it prints, `show`
from a second terminal and at the end, `fit`. A second run has another name and seed, and `compare`
receives both. The user adds one setting to the file, as the tutorial does: a learning rate for a
model that small. Writes results/first_hour.json, and the transcript on request.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path

from benchmarks.first_hour.user import PATIENCE, User, indented
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import STEPS
from rollcast.tasks.arithmetic import prompt_text
from testkit.record import write_result
from testkit.terminal import Terminal

SUMS = [(10 * a + b, 7 * b + a) for a in range(4) for b in range(5)]
FILE, OTHER = "mine.yaml", "other.yaml"
ADDED = (
    "recipe: {optimizer: {learning_rate: 5.0e-5, warmup_steps: 5}} # a model of half a million "
    "parameters bears it\n"
)
STEPS_IN_ALL, STOP_AT = 24, 5


class FirstHour(User):
    """With the demo's model and twenty rows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        model = ensure_base_model(BaseModel(), lambda share: None)
        (folder / "base-model").symlink_to(model)
        rows = [json.dumps({"prompt": prompt_text(a, b), "answer": str(a + b)}) for a, b in SUMS]
        (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")

    def steps(self, run: str) -> int:
        file = self.folder / "runs" / run / STEPS
        return len(file.read_text().splitlines()) if file.exists() else 0

    def stop_in_the_start(self) -> None:
        command = f"rollcast up --config {FILE}"
        with self.open(command) as terminal:
            terminal.wait(lambda: "engine starts" in terminal.screen(), PATIENCE)
            terminal.wait(lambda: terminal.seconds() > 4, PATIENCE)
            self.note(command, terminal, "The start, when Ctrl-C is typed")
            self._stop(command, terminal)

    def run_and_stop(self) -> str:
        """Returns the command that it prints."""
        command = f"rollcast up --config {FILE}"
        with self.open(command) as terminal:
            terminal.wait(lambda: self.steps("mine") >= 1, PATIENCE)
            self.times.append(
                {"command": command, "moment": "first step", "seconds": terminal.seconds()}
            )
            terminal.wait(lambda: self.steps("mine") >= STOP_AT, PATIENCE)
            self.note(command, terminal, "Under way, when Ctrl-C is typed")
            return self._stop(command, terminal)

    def _stop(self, command: str, terminal: Terminal) -> str:
        typed = terminal.seconds()
        terminal.ctrl_c()
        assert terminal.end(PATIENCE) == 130, terminal.full_output()
        took = round(terminal.seconds() - typed, 1)
        self.note(command, terminal, f"Ended {took} s after Ctrl-C", stopped_in_seconds=took)
        said = terminal.full_output().replace("\n", "")
        return said.partition("continue with: ")[2]

    def resume(self, command: str) -> None:
        with self.open(command) as terminal:
            terminal.wait(lambda: self.steps("mine") >= STEPS_IN_ALL * 3 // 4, PATIENCE)
            self.note(command, terminal, "Resumed, at three quarters")
            self.ask("rollcast show runs/mine")
            assert terminal.end(PATIENCE) == 0, terminal.full_output()
            self.note(command, terminal, "Finished")


def play(user: FirstHour) -> None:
    user.tell("## A run file\n\nIn `~/first-hour` are the demo's model and twenty rows.")
    user.ask(
        f"rollcast init {FILE} --model base-model --data rows.jsonl --verifier arithmetic --budget "
        f"{STEPS_IN_ALL}"
    )
    written = user.folder / FILE
    text = written.read_text() + ADDED
    written.write_text(text)
    user.tell(f"The last line of `{FILE}` is added by hand:\n\n{indented(text)}")
    user.ask(f"rollcast config check {FILE}")
    user.tell("## A trial")
    user.ask(f"rollcast try --config {FILE} --prompts 2")
    user.tell("## The run, stopped twice")
    user.stop_in_the_start()
    again = user.run_and_stop()
    user.tell("## Resumed, to its end")
    user.resume(again)
    user.ask("rollcast show runs/mine")
    user.tell("## What it will come to")
    user.ask("rollcast fit runs/mine")
    user.tell(f"## A second run\n\n`{OTHER}` is `{FILE}` with another name and `seed: 1`.")
    (user.folder / OTHER).write_text(
        re.sub(r"^run: mine\b", "run: other", text, flags=re.MULTILINE) + "seed: 1\n"
    )
    with user.open(f"rollcast up --config {OTHER}") as terminal:
        assert terminal.end(PATIENCE) == 0, terminal.full_output()
        user.note(
            f"rollcast up --config {OTHER}", terminal, "A second run with another seed, finished"
        )
    user.ask("rollcast compare runs/mine runs/other")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transcript", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        user = FirstHour(Path(name).resolve())
        try:
            play(user)
        finally:
            print("\n".join(user.pages))
    figures = {"steps": STEPS_IN_ALL, "commands": user.times}
    print(write_result("first_hour", figures))
    if arguments.transcript:
        head = (
            "# The first hour\n\nWhat a new user typed and saw, on a terminal of 80 columns and 24 "
            "lines. Written by "
            "`python -m benchmarks.first_hour --transcript lab/first-hour.md`.\n"
        )
        arguments.transcript.write_text("\n".join([head, *user.pages]))


if __name__ == "__main__":
    main()
