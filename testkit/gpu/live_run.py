"""`rollcast up` as a process, followed through its files and its metrics.

Its generators can be killed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from rollcast.connections.port_files import port_file, read_port
from rollcast.telemetry.prometheus_reader import SourceAway, parse_page
from testkit.system.audit import read_lines

COMMAND = (sys.executable, "-m", "rollcast.cli.main")
ONE_CARD = Path(__file__).parent / "one_card"
ENDING_SECONDS = 90.0
"""Longest time from Ctrl-C to the end: the run drains, saves and exports."""


class RunFailedError(RuntimeError):
    """The run ended early, or an awaited event did not happen in time."""


class LiveRun:
    """`with LiveRun(..) as run`: the command is killed at exit, and its services with it."""

    def __init__(
        self,
        folder: Path,
        run: str,
        arguments: Sequence[str],
        *,
        has_card: bool,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """folder: the command's working folder; its output is appended to `said` there."""
        self.folder = folder / "runs" / run
        self._output_file = folder / "said"
        with self._output_file.open("ab") as log:
            self._process = subprocess.Popen(
                # A shell in the background has its children ignore Ctrl-C.
                ["env", "--default-signal=INT", *command, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=surroundings(has_card=has_card),
            )

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(ENDING_SECONDS)

    @property
    def steps(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "steps.jsonl")

    @property
    def last_step(self) -> int:
        """0 before the first."""
        steps = self.steps
        return int(steps[-1]["step"]) if steps else 0

    def wait_for(self, condition: Callable[[], bool], seconds: float, event_name: str) -> float:
        """Seconds until `condition` holds.

        Raises RunFailedError if the command ended, or after `seconds`.
        """
        started = time.monotonic()
        while not condition():
            if self._process.poll() is not None:
                raise RunFailedError(
                    f"the command ended with {self._process.returncode}: {self.last_words()}"
                )
            if time.monotonic() > started + seconds:
                raise RunFailedError(
                    f"{event_name} did not happen within {seconds:.0f} s: {self.last_words()}"
                )
            time.sleep(0.1)
        return time.monotonic() - started

    def wait_step(self, step: int, seconds: float) -> float:
        """Seconds until that step is made."""
        return self.wait_for(lambda: self.last_step >= step, seconds, f"step {step}")

    def count_joined(self) -> int:
        """Generators that the trainer's page counts; 0 without a page."""
        with suppress(httpx.HTTPError, OSError, ValueError, SourceAway):
            return int(self.metrics("trainer").get(("rollcast_generators", "joined"), 0.0))
        return 0

    def metrics(self, service: str) -> dict[tuple[str, str], float]:
        """The page of a service: values by name and label value, for metrics that have at most one
        label besides the run's; "" without one.
        """
        port = read_port(port_file(self.folder, service))
        text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5.0).text
        return {
            (sample.name, "".join(own)): sample.value
            for sample in parse_page(text)
            if len(own := [value for name, value in sample.labels.items() if name != "run"]) < 2
        }

    def kill_generator(self, name: str) -> None:
        """SIGKILL the generator and all that it started, as when a pod is lost."""
        children = psutil.Process(self._process.pid).children()
        named = [child for child in children if _is_named(child, name)]
        if not named:
            raise RunFailedError(f"{name} is no process of the run: {self.last_words()}")
        below = [process for parent in named for process in parent.children(recursive=True)]
        for process in named + below:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code. Raises RunFailedError if it does not end."""
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            late = f"the command did not end within {ENDING_SECONDS:.0f} s of Ctrl-C"
            raise RunFailedError(f"{late}: {self.last_words()}") from None

    def last_words(self) -> str:
        """The end of what the command said."""
        # Lines of the command's output that are quoted as the reason of a failure
        return " | ".join(self._output_file.read_text(errors="replace").strip().splitlines()[-6:])


def surroundings(*, has_card: bool) -> dict[str, str]:
    """The environment of a run whose processes share one card, on a machine without a network."""
    path = os.pathsep.join([str(ONE_CARD), *filter(None, [os.environ.get("PYTHONPATH")])])
    added = {
        "PYTHONPATH": path,
        "NCCL_SOCKET_IFNAME": "lo",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if has_card and importlib.util.find_spec("flashinfer") is None:
        added["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # it is vLLM's default sampler, and missing here
    return os.environ | added


def _is_named(process: psutil.Process, name: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        arguments = process.cmdline()
        return "--name" in arguments and arguments[arguments.index("--name") + 1] == name
    return False
