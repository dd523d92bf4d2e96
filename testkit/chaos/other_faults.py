"""Networks that fail between two processes, a full disk, and SIGTERM in a phase of the work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from testkit.chaos.claims import outstanding
from testkit.chaos.effect import Effect
from testkit.chaos.faults import Fault
from testkit.chaos.fleet import Fleet
from testkit.chaos.process_faults import terminate
from testkit.small_disk import fill
from testkit.system.faults import count_joined

PHASE_SECONDS = 60.0
"""How long a phase is waited for: several checkpoints, or many steps."""
POLL_SECONDS = 0.02
"""Between two looks for a phase; the shortest one lasts some milliseconds."""


def strike_network(fleet: Fleet, fault: Fault) -> Effect:
    if fault.target == "gloo store":
        # Members use it when they join, so a generator is fenced and comes back through it
        fleet.system.signal("g1", signal.SIGSTOP)
        fleet.wait(lambda: count_joined(fleet.system) == 1, "the frozen generator's removal")
        fleet.expect_end("g1")
        fleet.system.signal("g1", signal.SIGCONT)
    proxies = fleet.network.pairs.get(fault.target, [])
    for proxy in proxies:
        proxy.begin(fault.kind)
    fleet.sleep(fault.seconds)
    for proxy in proxies:
        proxy.finish()
    struck = sum(proxy.num_struck for proxy in proxies)
    return Effect(struck > 0, f"{struck} messages were struck")


def fill_disk(fleet: Fleet, fault: Fault) -> Effect:
    """The trainer ends when a line of its records is refused, and is started until it succeeds."""
    if not fleet.has_small_disk:
        return Effect(False, "no disk could be mounted")
    num_ends = len(fleet.ends)
    filler = fill(fleet.run_folder, but_bytes=0)
    try:
        fleet.sleep(fault.seconds)
    finally:
        filler.unlink()
    ended = sorted({end["name"] for end in fleet.ends[num_ends:]})
    return Effect(bool(ended), f"refused a write of: {', '.join(ended) or 'no process'}")


def terminate_in_phase(fleet: Fleet, fault: Fault) -> Effect:
    is_in_phase = _PHASES[fault.phase](fleet, fleet.owner(fault.target))
    deadline = time.monotonic() + PHASE_SECONDS
    while not is_in_phase():
        if time.monotonic() > deadline:
            return Effect(False, f"{fault.target} was not seen {fault.phase}")
        fleet.tick()
        time.sleep(POLL_SECONDS)
    process = fleet.find(fault.target)
    if process is None:
        return Effect(False, "its process was gone")
    effect = terminate(fleet, process, fleet.owner(fault.target))
    effect.evidence = f"it was {fault.phase}; {effect.evidence}"
    return effect


Phase = Callable[[Fleet, str], Callable[[], bool]]


def _claiming(fleet: Fleet, name: str) -> Callable[[], bool]:
    """A task has this owner now that had another one, or none, at the look before."""
    known: set[int] | None = None

    def look() -> bool:
        nonlocal known
        claims = outstanding(fleet).claims
        owned = {task for task, claim in claims.items() if claim.owner.startswith(f"{name}-")}
        is_new = known is not None and bool(owned - known)
        known = owned
        return is_new

    return look


def _rising(metric: str, until: str = "") -> Phase:
    """A counter of the page has risen since the look before, another one has not."""

    def make(fleet: Fleet, name: str) -> Callable[[], bool]:
        last: tuple[float, float] | None = None

        def look() -> bool:
            nonlocal last
            page = fleet.page(name)
            now = (_total(page, metric), _total(page, until))
            has_risen = last is not None and now[0] > last[0] and now[1] == last[1]
            last = now if page else None
            return has_risen

        return look

    return make


def _total(page: dict[tuple[str, tuple[tuple[str, str], ...]], float], metric: str) -> float:
    return sum(value for (name, _), value in page.items() if name == metric)


def _sampling(fleet: Fleet, name: str) -> Callable[[], bool]:
    return lambda: fleet.metric(name, "rollcast_running_rollouts") > 0


def _calling(fleet: Fleet, name: str) -> Callable[[], bool]:
    """More episodes are under way than sample or wait for an environment."""

    def look() -> bool:
        page = fleet.page(name)
        others = ("rollcast_episodes_waiting", "rollcast_running_rollouts")
        busy = _total(page, "rollcast_episodes_in_flight")
        return busy > sum(_total(page, metric) for metric in others)

    return look


def _new_step(fleet: Fleet, name: str) -> Callable[[], bool]:
    """A step has just been made, and its version goes out or is received."""
    last: int | None = None

    def look() -> bool:
        nonlocal last
        step = fleet.system.last_step
        is_new = last is not None and step > last
        last = step
        return is_new and fleet.metric("g1", "rollcast_policy_step") < step

    return look


def _checkpointing(fleet: Fleet, name: str) -> Callable[[], bool]:
    """A checkpoint's folder lacks the file that is written last."""
    folder = fleet.run_folder / "checkpoints"
    return lambda: any(
        not (checkpoint / "controller.json").exists()
        for checkpoint in (folder.iterdir() if folder.exists() else ())
        if checkpoint.is_dir()
    )


_PHASES: dict[str, Phase] = {
    "claiming": _claiming,
    "sampling": _sampling,
    "grading": _rising("rollcast_gradings_total"),
    "calling a tool": _calling,
    "publishing": _new_step,
    "receiving": _new_step,
    # The version is received, and the pause that applies it is not over
    "applying": _rising(
        "rollcast_weight_receive_seconds_count", "rollcast_weight_pause_seconds_count"
    ),
    "checkpointing": _checkpointing,
}
