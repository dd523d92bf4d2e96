"""A world that fails in many ways, in the profile folder: raises, hangs, dies, floods, leaks, and
gives no reward.

Its row says how. Each attempt at an episode misbehaves with a probability, so that some succeed at
the second try. Nothing is imported from Rollcast: a generator loads it as a user's file.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

CALL_SECONDS = (0.05, 0.3)
HANG_SECONDS = 600.0
MANY_BYTES = 10 << 20
_chance = random.SystemRandom()
"""Processes of one fork server are forks, which would all draw the same numbers from `random`."""

NAMED = {
    "raise in reset": "the world is out of order",
    "hang in reset": "reset (took longer than|could not be interrupted after)",
    "10 MB in reset": "its process sent a message of 10485",
    "crash": "its process ended during call",
    "deaf": "call could not be interrupted after",
    "processes": "its processes were ended: it",
    "rubbish": "its process sent a message of 1213486160 bytes",
    "no reward": "gave no reward",
    "odd reward": "a reward is a number, not str",
}
"""By mischief: a pattern of the sentence in which an episode that is given up for it says so."""
SURVIVED = ("hang", "10 MB", "leaks")
"""Mischiefs that are answered, and fail no episode."""


class MisbehavingWorld:
    def reset(self, mischief: str = "", mark: str = "0", **row: object) -> str | None:
        """Begin an episode. `mark`: digits by which its leaks are found."""
        # Share of the episodes that misbehave
        self.mischief = mischief if _chance.random() < 0.6 else ""
        self.mark = mark
        self.steps = 0
        if self.mischief == "raise in reset":
            raise RuntimeError("the world is out of order")
        if self.mischief == "hang in reset":
            time.sleep(HANG_SECONDS)
        return "x" * MANY_BYTES if self.mischief == "10 MB in reset" else None

    def step(self) -> str:
        """Take a step."""
        time.sleep(_chance.uniform(*CALL_SECONDS))
        self.steps += 1
        return self._misbehave() if self.steps == 2 else "on"

    def get_reward(self) -> float | str | None:
        """By the number of steps, so that the episodes of a group differ."""
        if self.mischief == "no reward":
            return None
        return "good" if self.mischief == "odd reward" else float(self.steps % 2)

    def _misbehave(self) -> str:
        match self.mischief:
            case "hang":
                time.sleep(HANG_SECONDS)
            case "deaf":
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
                time.sleep(HANG_SECONDS)
            case "crash":
                os._exit(1)
            case "10 MB":
                return "x" * MANY_BYTES
            case "rubbish":
                os.write(3, b"HTTP/1.1 200 OK\r\n\r\n")
            case "processes":
                # More than an episode may have
                for _ in range(80):
                    if os.fork() == 0:
                        time.sleep(HANG_SECONDS)
                        os._exit(0)
                time.sleep(HANG_SECONDS)
            case "leaks":
                for number in range(3):
                    self._leak_process()
                    with open(f"leaked-{self.mark}-{number}", "wb") as file:
                        # Bytes that each episode leaves in its folder
                        file.write(bytes(1 << 20))
        return "on"

    def _leak_process(self) -> None:
        subprocess.Popen(["/bin/sleep", f"{HANG_SECONDS:.0f}.{self.mark}"], start_new_session=True)
