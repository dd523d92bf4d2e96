"""One turn of the autoscaler: has the run ended? Read, decide, mark pods before a fall, show the number, apply it."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rollcast.autoscaler.announcer import Announcer
from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.collector import Collector, FleetReading, NotMeasured, generators_there, inflight_tokens
from rollcast.autoscaler.decision import Decision, Memory, ReplicaLimits, decide
from rollcast.autoscaler.sources import FleetSource
from rollcast.autoscaler.totals import CONSUMPTION_WINDOWS, TREND_SECONDS, Totals, WindowRates, rates
from rollcast.config.run import RunConfig
from rollcast.recipe import staleness
from rollcast.recipe.schedule import Schedule, make_schedule
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.prometheus_reader import SourceAway

if TYPE_CHECKING:
    from rollcast.autoscaler.deployment import Deployment

MAX_KEPT_TOTALS = 20_000
"""Readings that are kept whatever the window and the interval: a bound of memory."""
log = get_logger()


class Loop:
    """Call `turn` every few seconds."""

    def __init__(
        self,
        config: RunConfig,
        source: FleetSource,
        deployment: Deployment | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` in seconds: a simulated run has its own."""
        self._clock = clock
        self._announcer = Announcer()
        self._run = config.run
        self._settings = config.autoscaler
        self._source = source
        self._deployment = deployment
        schedule = make_schedule(config.recipe.schedule, groups_per_step=config.recipe.prompts_per_step)
        self._limits = ReplicaLimits(
            slots=config.generator.most_slots,
            rollouts_per_group=config.recipe.most_rollouts_per_prompt,
            window_groups=widest_window(schedule),
        )
        self._collector = Collector(config.run, schedule.max_staleness)
        self._history: deque[Totals] = deque(maxlen=MAX_KEPT_TOTALS)
        self._memory: Memory | None = None
        self._applied: int | None = None
        self._run_has_ended: bool | None = None
        self._measured_at = clock()
        self._reason = "nothing was measured yet"
        self._counted: Counter[str] = Counter()

    def ready(self) -> tuple[bool, str]:
        """The answer of /readyz: always ready, with the reason of the last decision."""
        return True, self._reason

    def close(self) -> None:
        self._source.close()

    def turn(self, board: DecisionBoard, exporter: Exporter) -> None:
        """Failures are counted, and tried again at the next turn."""
        if not self.let_go_at_end(board, exporter):
            self._follow_the_run(board, exporter)
        self._announce(exporter)

    def _follow_the_run(self, board: DecisionBoard, exporter: Exporter) -> None:
        now = self._clock()
        reading, measured = self._measure(now)
        for reason, count in self._source.skipped.items():
            exporter.add(names.AUTOSCALER_SKIPPED, count - self._counted[reason], reason=reason)
            self._counted[reason] = count
        exporter.set(names.AUTOSCALER_MEASURED, float(isinstance(measured, WindowRates)))
        if self._memory is None:
            self._memory = self._first(now, reading, exporter)
        if self._memory is None:
            self._say(f"no number yet: {measured}")
            return
        self._announcer.goes_on()
        if self._collector.run_begins:
            self._memory = replace(
                self._memory, tries_from=-math.inf
            )  # no earlier autoscaler can have measured more of such a run
        if self._collector.slots is not None:
            self._limits = replace(self._limits, slots=self._collector.slots)
        before = self._memory.target
        decision = decide(now, measured, self._memory, self._limits, self._settings)
        self._memory = decision.memory
        self._report(decision, before, exporter)
        self._watch(now, decision, isinstance(measured, WindowRates), exporter)
        if decision.target < before and reading is not None:
            self._mark(reading, exporter)
        self._show(decision.target, board, exporter)
        if self._settings.mode == "controller":
            self._apply(decision.target, exporter)

    def begin(self, board: DecisionBoard, exporter: Exporter) -> None:
        """Show the present number, as far as it is known before the first reading.

        Call it before serving: no client may see an ended run as active, or a running one as unknown.
        """
        now = self._clock()
        if self.let_go_at_end(board, exporter):
            return
        self._memory = self._first(now, None, exporter)
        if self._memory is not None:
            held = decide(now, self._reason, self._memory, self._limits, self._settings)
            self._show(held.target, board, exporter)

    def let_go_at_end(self, board: DecisionBoard, exporter: Exporter) -> bool:
        """Ask for 0 generators if the run has ended; returns whether it has."""
        before = self._run_has_ended
        self._run_has_ended = self._ask_for_end(exporter)
        if not self._run_has_ended:
            return False
        if not before:
            if self._memory is not None:
                exporter.add(names.AUTOSCALER_CHANGES, direction="down")
            self._memory = None
            self._history.clear()
            self._collector.interrupt()
        self._say("the run has ended: no generator is needed")
        self._announcer.ended(self._reason)
        exporter.set(names.AUTOSCALER_MEASURED, 0.0)
        self._show(0, board, exporter)
        if self._settings.mode == "controller":
            self._apply(0, exporter)
        return True

    def _ask_for_end(self, exporter: Exporter) -> bool | None:
        """Whether the trainer's Jobs are complete; the earlier answer if they are gone or cannot be listed."""
        if self._deployment is None or self._settings.trainer_jobs is None:
            return None
        from rollcast.autoscaler.api_server import ClusterAway

        try:
            complete = self._deployment.jobs_are_complete(self._settings.trainer_jobs)
            if complete is None and self._run_has_ended is None:
                # Finished Jobs are removed after a while. A Deployment at 0 was then let go by an earlier autoscaler.
                return self._deployment.replicas() == 0
        except ClusterAway as error:
            self._failed("jobs", str(error), exporter)
            return self._run_has_ended
        return self._run_has_ended if complete is None else complete

    def _measure(self, now: float) -> tuple[FleetReading | None, WindowRates | str]:
        reading = None
        try:
            reading = self._source.read()
            totals = self._collector.take(reading, now)
        except (SourceAway, NotMeasured) as error:
            silent = now - self._measured_at
            if silent > self._settings.stale_seconds:
                self._history.clear()
                self._collector.interrupt()
                return reading, f"{error}, for {silent:.0f} s"
            return reading, str(error)
        self._measured_at = now
        self._history.append(totals)
        oldest = now - max(TREND_SECONDS, CONSUMPTION_WINDOWS * self._settings.window_seconds) - 60.0
        while self._history[0].at < oldest:
            self._history.popleft()
        found = rates(tuple(self._history), self._settings.window_seconds)
        return reading, found or "too little was measured since the last start of a pod or of the trainer"

    def _first(self, now: float, reading: FleetReading | None, exporter: Exporter) -> Memory | None:
        """The first number: the replicas of the Deployment, or the running generators without a Deployment.

        None while that is not known. A Deployment is waited for, because fewer generators may run than it asks for.
        """
        if self._deployment is None:
            there = None if reading is None else generators_there(reading, self._run)
            return None if there is None else Memory.of_a_start(there, now, self._settings)
        from rollcast.autoscaler.api_server import ClusterAway

        try:
            return Memory.of_a_start(self._deployment.replicas(), now, self._settings)
        except ClusterAway as error:
            self._failed("replicas", str(error), exporter)
            return None

    def _show(self, target: int, board: DecisionBoard, exporter: Exporter) -> None:
        board.show(target)
        exporter.set(names.GENERATORS_DESIRED, target)

    def _mark(self, reading: FleetReading, exporter: Exporter) -> None:
        if self._deployment is None:
            return
        from rollcast.autoscaler.api_server import ClusterAway

        try:
            self._deployment.prefer_idlest(inflight_tokens(reading, self._run))
        except ClusterAway as error:
            self._failed("mark", str(error), exporter)

    def _apply(self, target: int, exporter: Exporter) -> None:
        """Change the scale after a decision only: a number set by hand stays until the next decision."""
        if self._deployment is None or target == self._applied:
            return
        from rollcast.autoscaler.api_server import ClusterAway

        try:
            if rivals := self._deployment.rivals():
                self._failed(
                    "scale", f"{' and '.join(rivals)} scales the Deployment too; one of us has to go", exporter
                )
                return
            if self._deployment.replicas() != target:
                self._deployment.scale(target)
            self._applied = target
        except ClusterAway as error:
            self._failed("scale", str(error), exporter)

    def _watch(self, now: float, decision: Decision, is_measured: bool, exporter: Exporter) -> None:
        """Announce in events why the number does not follow the run, or the fleet not the number."""
        settings = self._settings
        # After a disturbance it is measured again within half a window, which is not worth an event.
        self._announcer.held(
            now, not is_measured, decision.reason, settings.stale_seconds + settings.window_seconds / 2
        )
        if not self._history or self._history[-1].at != now or self._deployment is None:
            return  # how many have joined is not known
        joined = self._history[-1].joined
        target = decision.target
        sentence = f"{target} generators are asked for, {joined} have joined the run"
        # An HPA does not change the pods within its tolerance.
        missing = joined < target * (1 - settings.ignored_change)
        if missing:
            sentence += self._pods_there(exporter)
        self._announcer.missing(now, missing, sentence, settings.start_up_seconds + settings.window_seconds)

    def _pods_there(self, exporter: Exporter) -> str:
        """How many pods exist, for the sentence about missing generators."""
        from rollcast.autoscaler.api_server import ClusterAway

        assert self._deployment is not None
        try:
            return f", {self._deployment.pods_there()} pods are there: a quota, missing nodes or a start that fails"
        except ClusterAway as error:
            self._failed("replicas", str(error), exporter)
            return ""

    def _announce(self, exporter: Exporter) -> None:
        """Write waiting events of the Deployment. Those that cannot be written wait for the next turn."""
        if self._deployment is None:
            return
        from rollcast.autoscaler.api_server import ClusterAway

        waiting = self._announcer.waiting
        try:
            while waiting:
                self._deployment.tell(waiting[0].occasion.value, waiting[0].sentence, warning=waiting[0].is_warning)
                waiting.popleft()
        except ClusterAway as error:
            self._failed("event", str(error), exporter)

    def _report(self, decision: Decision, before: int, exporter: Exporter) -> None:
        memory = decision.memory
        if decision.need is not None:
            exporter.set(names.AUTOSCALER_NEED, decision.need)
        if memory.capability is not None:
            exporter.set(names.AUTOSCALER_CAPABILITY, memory.capability)
        if decision.target != before:
            exporter.add(names.AUTOSCALER_CHANGES, direction="up" if decision.target > before else "down")
            self._announcer.changed(before, decision.target, decision.reason)
            log.info("another number of generators", before=before, wanted=decision.target, reason=decision.reason)
        self._say(decision.reason)

    def _say(self, reason: str) -> None:
        """Log a reason without a change only when its first words change, because its figures always do."""
        if reason.split(":")[0] != self._reason.split(":")[0]:
            log.info(reason)
        self._reason = reason

    def _failed(self, call: str, reason: str, exporter: Exporter) -> None:
        exporter.add(names.AUTOSCALER_FAILURES, call=call)
        log.error("Kubernetes did not do it; it is tried again", call=call, reason=reason)


def widest_window(schedule: Schedule) -> int:
    """Most groups that the staleness gate ever allows to be outstanding."""
    return max(
        staleness.window(
            floor=schedule.floor(step),
            max_staleness=schedule.max_staleness,
            step=step,
            groups_per_step=schedule.groups_per_step,
        )
        for step in range(schedule.max_staleness + 1)
    )
