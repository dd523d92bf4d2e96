"""Every fault that the chaos program knows, and in which kinds of run it is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RunKind = Literal["answers", "class", "endpoint", "lora", "teacher", "router replay", "store", "up"]
RUN_KINDS: tuple[RunKind, ...] = (
    "answers",
    "class",
    "endpoint",
    "lora",
    "teacher",
    "router replay",
    "store",
    "up",
)
"""`up`: a run of single answers that `rollcast up` starts; the others are started one by one."""
GENERATORS = ("g0", "g1")
HEARTBEAT_SECONDS = 6.0
"""weights.heartbeat_timeout_seconds of every run: the deadline after which a silent generator is
fenced. Shorter than the default, so that a run has time for more faults."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: its kind, the process or pair of processes that it strikes, and how long."""

    kind: str
    target: str
    seconds: float = 0.0
    """How long it lasts; 0 = it is a moment."""
    phase: str = ""
    """Work that the target is doing at that moment. Empty = any."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.target}" + (f" while {self.phase}" if self.phase else "")


SECONDS: dict[str, tuple[float, float]] = {
    # Up to 2.5 deadlines: generators are fenced in half of the cases
    "stop": (1.0, 2.5 * HEARTBEAT_SECONDS),
    # Long enough for a hand-over, which needs a group that would miss its deadline
    "slow": (8.0, 15.0),
    # From less than one retry of a client to more than a deadline of a heartbeat
    "delay": (3.0, 10.0),
    "loss": (3.0, 10.0),
    "half-open": (2.0, 2.0 * HEARTBEAT_SECONDS),
    "truncation": (1.0, 5.0),
    # Longer than the pause between two writes of checkpoints or records
    "full disk": (4.0, 10.0),
    # From less than one back-off of a client to more than its longest
    "OOM": (2.0, 10.0),
    "MISCONF": (2.0, 10.0),
    "READONLY": (2.0, 10.0),
    # Redis is away for this long before its damaged file is read
    "file truncated": (0.5, 3.0),
    "file damaged": (0.5, 3.0),
}
"""Shortest and longest duration of each kind that lasts; the rest are moments."""
SIGNALS = ("kill", "stop", "terminate")
NETWORK = ("delay", "loss", "half-open", "truncation")
REDIS_REFUSES = ("OOM", "MISCONF", "READONLY")
REDIS_FILE = ("file truncated", "file damaged")
GENERATOR_PHASES = ("claiming", "sampling", "receiving", "applying")
TRAINER_PHASES = ("publishing", "checkpointing")

_SERVICES: dict[RunKind, tuple[str, ...]] = {
    "answers": ("trainer 0", "trainer 1", "forecaster", "autoscaler"),
    "class": ("trainer 0", "fork server", "environment"),
    "endpoint": ("trainer 0", "harness"),
    "lora": ("trainer 0",),
    "teacher": ("trainer 0",),
    "router replay": ("trainer 0", "grader"),
    "store": ("trainer 0", "forecaster", "prometheus"),
    "up": ("trainer 0", "forecaster"),
}
"""Processes of each kind of run next to Redis and the generators with their engines."""


def signal_targets(kind: RunKind) -> tuple[str, ...]:
    engines = tuple(f"{name} engine" for name in GENERATORS)
    return (*GENERATORS, *engines, "redis", *_SERVICES[kind])


def possible_faults(kind: RunKind) -> tuple[Fault, ...]:
    """The faults of a kind of run, without their durations."""
    faults = [Fault(signal, target) for target in signal_targets(kind) for signal in SIGNALS]
    faults += [Fault("slow", name) for name in GENERATORS]
    if kind == "up":
        # `up` has its own Redis on a socket, and starts what ended: only processes can be struck
        return (*faults, Fault("kill", "up"), Fault("terminate", "up"))
    pairs = ["redis-trainer", "redis-generators", "rpc"]
    pairs += ["gloo store"] if kind != "store" else []
    pairs += ["endpoint"] if kind == "endpoint" else []
    faults += [Fault(fault, pair) for pair in pairs for fault in NETWORK]
    faults += [Fault("full disk", "run folder")]
    faults += [Fault(fault, "redis") for fault in (*REDIS_REFUSES, *REDIS_FILE)]
    phases = [*GENERATOR_PHASES]
    phases += ["grading"] if kind == "router replay" else []
    phases += ["calling a tool"] if kind == "class" else []
    faults += [Fault("terminate", "g1", phase=phase) for phase in phases]
    faults += [Fault("terminate", "trainer 0", phase=phase) for phase in TRAINER_PHASES]
    return tuple(faults)


LEFT_OUT = {
    "jumps of the wall clock": "libfaketime is not installed, and the machine's clock is not set",
    "network between the weights' gloo lanes": "gloo connects members by addresses of its own, "
    "past any proxy; their rendezvous store, gRPC and Redis have proxies",
}
"""Faults that the program does not make, and why."""
