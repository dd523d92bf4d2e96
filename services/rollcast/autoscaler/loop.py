"""One turn of the autoscaler: has the run ended?

Read, decide, mark pods before a fall, show the number, apply it.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rollcast.autoscaler.announcer import Announcer
from rollcast.autoscaler.api_server import KubernetesApiError
from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.collector import (
    Collector,
    FleetReading,
    NotMeasured,
    generators_there,
    inflight_tokens,
)
from rollcast.autoscaler.decision import Decision, decide
from rollcast.autoscaler.decision_memory import Memory, ReplicaLimits
from rollcast.autoscaler.deployment import Deployment
from rollcast.autoscaler.moved_trainer import MovedTrainer
from rollcast.autoscaler.sources import FleetSource
from rollcast.autoscaler.totals import (
    CONSUMPTION_WINDOWS,
    TREND_SECONDS,
    Totals,
    WindowRates,
    rates,
)
from rollcast.config.run import RunConfig
from rollcast.recipe.schedule import Schedule, make_schedule
from rollcast.telemetry import autoscaler_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.prometheus_reader import SourceAway

log = get_logger()


class Loop:
    """Call `begin` once, then `turn` every few seconds. Writes the board and the metrics."""

    def __init__(
        self,
        config: RunConfig,
        source: FleetSource,
        deployment: Deployment | None,
        board: DecisionBoard,
        exporter: Exporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` in seconds: a simulated run has its own."""
        self._clock = clock
        self._announcer = Announcer()
        self._run = config.run
        self._settings = config.autoscaler
        self._source = source
        self._deployment = deployment
        self._board = board
        self._exporter = exporter
        recipe = config.recipe
        schedule = make_schedule(recipe.schedule, groups_per_step=recipe.prompts_per_step)
        self._limits = ReplicaLimits(
            slots=config.generator.most_slots,
            rollouts_per_group=recipe.most_rollouts_per_prompt,
            window_groups=widest_window(schedule),
        )
        self._collector = Collector(config.run, schedule.max_staleness)
        # Readings that are kept whatever the window and the interval: a bound of memory
        self._history: deque[Totals] = deque(maxlen=20_000)
        self._memory: Memory | None = None
        self._moved_trainer = None
        if deployment is not None and self._settings.replaced_jobs is not None:
            self._moved_trainer = MovedTrainer(deployment, self._settings.replaced_jobs)
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

    def turn(self) -> None:
        """Failures are counted, and tried again at the next turn."""
        self._help_the_trainer()
        if not self.let_go_at_end():
            self._follow_the_run()
        self._announce()

    def _help_the_trainer(self) -> None:
        if self._moved_trainer is None:
            return
        with self._counting_failures("trainer"):
            if (job := self._moved_trainer.look(self._clock())) is not None:
                log.info("the trainer's Job was replaced: its pod had left on request", job=job)
                self._announcer.announce_replaced_job(job)

    def _follow_the_run(self) -> None:
        now_seconds = self._clock()
        reading, measured = self._measure(now_seconds)
        for reason, count in self._source.skipped.items():
            self._exporter.add(
                autoscaler_metrics.AUTOSCALER_SKIPPED, count - self._counted[reason], reason=reason
            )
            self._counted[reason] = count
        is_measured = isinstance(measured, WindowRates)
        self._exporter.set(autoscaler_metrics.AUTOSCALER_MEASURED, float(is_measured))
        if self._memory is None:
            self._memory = self._initial_memory(now_seconds, reading)
        if self._memory is None:
            self._say(f"no number yet: {measured}")
            return
        self._announcer.goes_on()
        if self._collector.run_begins:
            # No earlier autoscaler can have measured more of such a run.
            self._memory = replace(self._memory, tries_from=-math.inf)
        if self._collector.slots is not None:
            self._limits = replace(self._limits, slots=self._collector.slots)
        previous_target = self._memory.target
        decision = decide(now_seconds, measured, self._memory, self._limits, self._settings)
        self._memory = decision.memory
        self._report(decision, previous_target)
        self._watch(now_seconds, decision, is_measured)
        if (
            decision.target < previous_target
            and reading is not None
            and self._deployment is not None
        ):
            with self._counting_failures("mark"):
                self._deployment.prefer_idlest(inflight_tokens(reading, self._run))
        self._show(decision.target)
        self._apply(decision.target)

    def begin(self) -> None:
        """Show the present number, as far as it is known before the first reading.

        Call it before serving: no client may see an ended run as active, or a running one as
        unknown.
        """
        now_seconds = self._clock()
        if self.let_go_at_end():
            return
        self._memory = self._initial_memory(now_seconds, None)
        if self._memory is not None:
            self._show(
                decide(now_seconds, self._reason, self._memory, self._limits, self._settings).target
            )

    def let_go_at_end(self) -> bool:
        """Ask for 0 generators if the run has ended; returns whether it has."""
        had_ended = self._run_has_ended
        with self._counting_failures("jobs"):
            self._run_has_ended = self._ask_for_end()
        if not self._run_has_ended:
            return False
        if not had_ended:
            if self._memory is not None:
                self._exporter.add(autoscaler_metrics.AUTOSCALER_CHANGES, direction="down")
            self._memory = None
            self._history.clear()
            self._collector.interrupt()
        self._say("the run has ended: no generator is needed")
        self._announcer.announce_end(self._reason)
        self._exporter.set(autoscaler_metrics.AUTOSCALER_MEASURED, 0.0)
        self._show(0)
        self._apply(0)
        return True

    def _ask_for_end(self) -> bool | None:
        """Whether the trainer's Jobs are complete; the earlier answer if they are gone.

        Raises KubernetesApiError.
        """
        if self._deployment is None or self._settings.trainer_jobs is None:
            return None
        complete = self._deployment.jobs_are_complete(self._settings.trainer_jobs)
        if complete is None and self._run_has_ended is None:
            # Finished Jobs are removed after a while. A Deployment at 0 was then let go by an
            # earlier autoscaler.
            return self._deployment.replicas() == 0
        return self._run_has_ended if complete is None else complete

    def _measure(self, now_seconds: float) -> tuple[FleetReading | None, WindowRates | str]:
        reading = None
        try:
            reading = self._source.read()
            totals = self._collector.take(reading, now_seconds)
        except (SourceAway, NotMeasured) as error:
            silent = now_seconds - self._measured_at
            if silent > self._settings.stale_seconds:
                self._history.clear()
                self._collector.interrupt()
                return reading, f"{error}, for {silent:.0f} s"
            return reading, str(error)
        self._measured_at = now_seconds
        self._history.append(totals)
        window_seconds = self._settings.window_seconds
        kept_seconds = max(TREND_SECONDS, CONSUMPTION_WINDOWS * window_seconds) + 60.0
        while self._history[0].at < now_seconds - kept_seconds:
            self._history.popleft()
        too_little = "too little was measured since the last start of a pod or of the trainer"
        return reading, rates(tuple(self._history), window_seconds) or too_little

    def _initial_memory(self, now_seconds: float, reading: FleetReading | None) -> Memory | None:
        """The first number: the replicas of the Deployment, or the running generators without a
        Deployment.

        None while that is not known. A Deployment is waited for, because fewer generators may run
        than it asks for.
        """
        num_replicas = None
        if self._deployment is not None:
            with self._counting_failures("replicas"):
                num_replicas = self._deployment.replicas()
        elif reading is not None:
            num_replicas = generators_there(reading, self._run)
        return None if num_replicas is None else Memory.make_initial(num_replicas, now_seconds)

    def _show(self, target: int) -> None:
        self._board.show(target)
        self._exporter.set(autoscaler_metrics.GENERATORS_DESIRED, target)

    def _apply(self, target: int) -> None:
        """Change the scale in mode controller, after a decision only: a number set by hand stays
        until the next one.
        """
        if (
            self._settings.mode != "controller"
            or self._deployment is None
            or target == self._applied
        ):
            return
        with self._counting_failures("scale"):
            if rivals := self._deployment.rivals():
                rival_names = " and ".join(rivals)
                raise KubernetesApiError(
                    f"{rival_names} scales the Deployment too; one of us has to go"
                )
            if self._deployment.replicas() != target:
                self._deployment.scale(target)
            self._applied = target

    def _watch(self, now_seconds: float, decision: Decision, is_measured: bool) -> None:
        """Announce in events why the number does not follow the run,
        or the fleet not the number.
        """
        settings = self._settings
        # After a disturbance it is measured again within half a window, which is not worth an
        # event.
        patience = settings.stale_seconds + settings.window_seconds / 2
        self._announcer.announce_hold(now_seconds, not is_measured, decision.reason, patience)
        if not self._history or self._history[-1].at != now_seconds or self._deployment is None:
            return  # how many have joined is not known
        joined = self._history[-1].joined
        target = decision.target
        sentence = f"{target} generators are asked for, {joined} have joined the run"
        # An HPA does not change the pods within its tolerance.
        is_fleet_incomplete = joined < target * (1 - settings.ignored_change)
        if is_fleet_incomplete:
            with self._counting_failures("replicas"):
                pods = self._deployment.pods_there()
                sentence += f", {pods} pods are there: a quota, missing nodes or a start that fails"
        patience = settings.start_up_seconds + settings.window_seconds
        self._announcer.announce_missing(now_seconds, is_fleet_incomplete, sentence, patience)

    def _announce(self) -> None:
        """Write waiting events of the Deployment.

        Those that cannot be written wait for the next turn.
        """
        waiting = self._announcer.waiting
        with self._counting_failures("event"):
            while waiting and self._deployment is not None:
                occasion, sentence = waiting[0]
                self._deployment.tell(occasion.value, sentence, warning=occasion.is_warning)
                waiting.popleft()

    def _report(self, decision: Decision, previous_target: int) -> None:
        memory = decision.memory
        if decision.need is not None:
            self._exporter.set(autoscaler_metrics.AUTOSCALER_NEED, decision.need)
        if memory.capability is not None:
            self._exporter.set(autoscaler_metrics.AUTOSCALER_CAPABILITY, memory.capability)
        if decision.target != previous_target:
            direction = "up" if decision.target > previous_target else "down"
            self._exporter.add(autoscaler_metrics.AUTOSCALER_CHANGES, direction=direction)
            self._announcer.announce_change(previous_target, decision.target, decision.reason)
            log.info(
                "another number of generators",
                before=previous_target,
                wanted=decision.target,
                reason=decision.reason,
            )
        self._say(decision.reason)

    def _say(self, reason: str) -> None:
        """Log a reason without a change only when its first words change, because its figures
        always do.
        """
        if reason.split(":")[0] != self._reason.split(":")[0]:
            log.info(reason)
        self._reason = reason

    @contextmanager
    def _counting_failures(self, call: str) -> Iterator[None]:
        """If Kubernetes refuses, count and log it, and leave out the rest of the block."""
        try:
            yield
        except KubernetesApiError as error:
            self._exporter.add(autoscaler_metrics.AUTOSCALER_FAILURES, call=call)
            log.error("Kubernetes did not do it; it is tried again", call=call, reason=str(error))


def widest_window(schedule: Schedule) -> int:
    """Most groups that the staleness gate ever allows to be outstanding."""
    return max(schedule.window(step) for step in range(schedule.max_staleness + 1))
