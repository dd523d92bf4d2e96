"""One input given to the product, judged by its outcome, its time and its memory."""

from __future__ import annotations

import os
import resource
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from testkit.fuzz.target import Target

MEMORY_BYTES = 128 << 20
"""How much an input may make the process grow, besides MEMORY_FACTOR times its own size."""
MEMORY_FACTOR = 64
SERVICES = str(Path(__file__).parents[2] / "services")


@dataclass(frozen=True)
class Finding:
    """Why an input is one: it raised another error, took too long or too much memory."""

    name: str
    """Inputs of one cause share it."""
    text: str


def try_input(target: Target, content: bytes) -> Finding | None:
    """None = the input was read or refused as documented, within the bounds."""
    resident = _resident_bytes()
    finding, seconds = _try_once(target, content)
    if finding is not None:
        return finding
    allowed_seconds = target.seconds * (1 + len(content) / (1 << 20))
    if seconds > allowed_seconds:
        # Imports and collections that happened by chance take no time at the second try.
        _, seconds = _try_once(target, content)
        if seconds > allowed_seconds:
            return Finding("slow", f"{seconds:.1f} s of processor time for {len(content)} bytes")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident
    if grown > MEMORY_BYTES + MEMORY_FACTOR * len(content) and _peak_growth(target, content) > (
        MEMORY_BYTES + MEMORY_FACTOR * len(content)
    ):
        return Finding("memory", f"grew by {grown >> 20} MiB for {len(content)} bytes")
    return None


def _try_once(target: Target, content: bytes) -> tuple[Finding | None, float]:
    began = time.process_time()
    try:
        target.read(content)
    except target.errors:
        pass
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        return _describe(error), 0.0
    return None, time.process_time() - began


def _describe(error: BaseException) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(SERVICES)] or list(frames)
    place = f"{Path(own[-1].filename).name}:{own[-1].name}"
    kind = type(error).__name__
    return Finding(f"{kind} {place}", f"{kind} at {place}: {' '.join(str(error).split())[:300]}")


def _peak_growth(target: Target, content: bytes) -> int:
    """The growth at a second try, with the highest mark of the process set back before it."""
    Path("/proc/self/clear_refs").write_text("5")
    resident = _resident_bytes()
    _try_once(target, content)
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return peak - resident


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
