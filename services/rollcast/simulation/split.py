"""How to split a fixed number of devices between generators and trainers.

A split is n generators of d devices each and one trainer on T devices. It makes at most

    min(1 / step(T),                                   the trainer never waits
        n x tokens a second / tokens of one step,      every slot of every generator is always taken
        W / P / (longest rollout + step(T)))           W, the staleness window, is always full
                                                       (Little's law)

steps a second. With equally long rollouts and a wide window this bound is reached: a step takes
max(training, generation). Stragglers and the time to send weights reduce it; the simulation around
the real gate and schedule shows by how much. The simulated rate never exceeds the bound, so a split
whose bound is below a simulated rate is not simulated.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, stdev

from rollcast.recipe.schedule import Schedule
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.pipeline import Pipeline, SimulatedTrainer
from rollcast.simulation.workload import Lengths, Workload

SECONDS_PER_HOUR = 3600.0
EQUAL_RATE_SHARE = 0.03
"""Relative difference of rates up to which two splits are equally good. Chosen, not measured."""
NUM_ERROR_BLOCKS = 6
"""Blocks of successive steps from whose scatter the error of the rate is computed."""
MAX_SIMULATIONS = 24
"""Up to this many simulations every split that could be the best is simulated; with more the search
narrows down. Chosen, not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Measured rates of one run."""

    schedule: Schedule
    lengths: Lengths
    rollouts_per_group: int
    engine: EngineSpeed
    """One generator."""
    devices_per_generator: int = 1
    step_seconds: float
    """An optimizer step on `trainer_devices` devices, without waiting."""
    trainer_devices: int = 1
    trainer_scaling: float = 1.0
    """e: on T devices a step takes step_seconds x (trainer_devices / T)^e."""
    predicted_trainer: Callable[[int], tuple[float, float]] | None = None
    """Seconds of an update on T devices, and of the pause after it in which a version is sent or
    the generators have the GPU; None = scaled as above, without a pause."""
    trainer_multiple: int = 1
    """The trainer's devices come in multiples of this."""
    publish_seconds: float = Delays().publish

    def step_seconds_on(self, devices: int) -> float:
        """Seconds of an optimizer step on this number of devices."""
        if self.predicted_trainer is not None:
            return self.predicted_trainer(devices)[0]
        return self.step_seconds * math.pow(self.trainer_devices / devices, self.trainer_scaling)

    def pause_seconds_on(self, devices: int) -> float:
        """Seconds after each update in which the trainer may not begin the next one."""
        return 0.0 if self.predicted_trainer is None else self.predicted_trainer(devices)[1]

    def tokens_per_second(self) -> float:
        """The most tokens a second that one generator can sample."""
        max_running = max(self.engine.slots, self.rollouts_per_group)
        return max(running / self.engine.step_seconds(running) for running in (1, max_running))


@dataclass(frozen=True, slots=True)
class Split:
    """Numbers of devices of each side."""

    generators: int
    devices_per_generator: int
    trainer_devices: int
    unused: int = 0
    """Devices that fit neither side."""


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """Rates and waits of one split after its start. Shares are of the measured time."""

    split: Split
    bound: float
    """Upper bound of the steps an hour, see the module."""
    steps_per_hour: float
    standard_error: float
    """Standard error of `steps_per_hour`, from blocks of successive steps."""
    waits: dict[str, float]
    """Share of the time that the trainer waited, by reason (`WaitReason`)."""
    trainer_paused: float
    """Share of the time in the pauses after updates (`Rates.predicted_trainer`)."""
    staleness_mean: float
    """Mean staleness of the oldest token of each trained group, in steps."""
    staleness_max: int
    generator_load: float
    """Tokens sampled over what the generators could sample with every slot taken."""

    @property
    def wait_share(self) -> float:
        """Share of the time that the trainer waited, for whatever reason."""
        return sum(self.waits.values())

    @property
    def trainer_idle(self) -> float:
        """Share of the time that the trainer was not in an update."""
        return self.wait_share + self.trainer_paused

    @property
    def generator_idle(self) -> float:
        return 1.0 - self.generator_load

    @property
    def step_seconds(self) -> float:
        """Time from one step to the next."""
        return SECONDS_PER_HOUR / self.steps_per_hour


@dataclass(frozen=True, slots=True)
class SplitSearch:
    """The splits that were simulated, by trainer devices ascending."""

    outcomes: tuple[SplitOutcome, ...]
    best: SplitOutcome
    """The most steps an hour; of equals the one with the fresher tokens."""
    as_good: tuple[SplitOutcome, ...]
    """Within the margin of the best, or within the standard error of the difference, itself
    included."""
    frugal: SplitOutcome
    """The split of `as_good` with the fewest trainer devices: more of them would only wait."""
    beaten: int
    """Splits that were not simulated because their bound is below the best rate."""
    passed_over: int
    """Splits that were not simulated although their bound does not exclude them: they are between
    simulated ones that are worse than the best."""


def list_splits(devices: int, rates: Rates) -> list[Split]:
    """Every split of `devices` that leaves no side smaller than it could be, by trainer devices
    ascending.
    """
    largest: dict[int, Split] = {}
    for trainer in range(rates.trainer_multiple, devices, rates.trainer_multiple):
        generators = (devices - trainer) // rates.devices_per_generator
        if generators:
            unused = devices - trainer - generators * rates.devices_per_generator
            largest[generators] = Split(generators, rates.devices_per_generator, trainer, unused)
    return list(largest.values())


class SplitSimulator:
    """Simulates splits on the same tasks."""

    def __init__(self, rates: Rates, *, seed: int = 0) -> None:
        """Whole rounds of k + 1 steps are measured, after as many as the window needs to fill and
        settle.
        """
        self._rates = rates
        round_steps = rates.schedule.max_staleness + 1
        rollouts = rates.schedule.groups_per_step * rates.rollouts_per_group
        # 48: optimizer steps that are measured at least, so that six blocks of them give an error
        # of the rate; 1500: rollouts at least, so that their mean length is that of the run.
        steps = max(48, math.ceil(1500 / rollouts))
        self._steps = math.ceil(steps / round_steps) * round_steps
        # Rounds of k + 1 steps before the measurement, in which the staleness window fills and
        # settles
        self._warm_up = 3 * round_steps
        self._seed = seed
        self._workload = Workload(
            lengths=rates.lengths, rollouts_per_group=rates.rollouts_per_group, seed=seed
        )
        groups = rates.schedule.groups_per_step
        # 20,000: groups from which means of their lengths are taken at most: to one in a thousand.
        num_tasks = min(20_000, groups * (self._warm_up + self._steps))
        tasks = [self._workload.task(number) for number in range(num_tasks)]
        self.tokens_per_step = fmean(sum(task.lengths) for task in tasks) * groups
        """Tokens that the generators sample for one step, on the average of these tasks."""
        self._longest_seconds = fmean(
            max(task.lengths) for task in tasks
        ) * rates.engine.step_seconds(1)

    @property
    def _widest_window(self) -> int:
        """The most groups under way."""
        schedule = self._rates.schedule
        return max(schedule.window(step) for step in range(schedule.max_staleness + 1))

    def bound(self, split: Split) -> float:
        """Upper bound of the steps an hour."""
        generation = self.tokens_per_step / (split.generators * self._rates.tokens_per_second())
        training = self._rates.step_seconds_on(split.trainer_devices)
        rounds = self._widest_window / self._rates.schedule.groups_per_step
        window = (self._longest_seconds + training) / rounds
        pause = self._rates.pause_seconds_on(split.trainer_devices)
        return SECONDS_PER_HOUR / max(generation, training + pause, window)

    def simulate(self, split: Split) -> SplitOutcome:
        """Simulate one split. Raises DeadlockError if the run cannot finish.

        A large run is simulated at a smaller scale: generators are alike, so that each has as much
        to do if a step has as many groups fewer as there are generators fewer.
        """
        rates = self._rates
        pause = rates.pause_seconds_on(split.trainer_devices)
        num_busy = min(split.generators, self._widest_window)
        num_generators, groups = scaled_down(
            num_busy, rates.schedule.groups_per_step, rates.rollouts_per_group
        )
        pipeline = Pipeline(
            schedule=replace(rates.schedule, groups_per_step=groups),  # type: ignore[type-var]  # each is a dataclass
            workload=self._workload,
            engines=[rates.engine] * num_generators,
            trainer=SimulatedTrainer(step=rates.step_seconds_on(split.trainer_devices) + pause),
            delays=Delays(publish=rates.publish_seconds, join=0.0),
            fresh=True,
            seed=self._seed,
        )
        # More events in a step than 50 for each rollout, and the news of new weights at each
        # generator, mean that the run cannot finish.
        events = 50 * groups * rates.rollouts_per_group + num_generators
        last = self._warm_up + self._steps
        report = pipeline.run(steps=self._warm_up, max_events=events * last)
        start = pipeline.now
        tokens = _tokens(pipeline)
        waits_before = dict(report.wait_seconds)
        staleness_before = Counter(report.staleness)
        pipeline.run(steps=last, max_events=events * last)
        seconds = pipeline.now - start
        times = report.step_times[self._warm_up - 1 :]
        trained = report.staleness - staleness_before
        waits: dict[str, float] = {}
        for reason, total in report.wait_seconds.items():
            waited = total - waits_before.get(reason, 0.0)
            if waited > 0:
                waits[str(reason)] = waited / seconds
        capacity = num_generators * rates.tokens_per_second() * seconds
        # More generators than groups under way: the others are idle.
        busy_share = num_busy / split.generators
        rate = SECONDS_PER_HOUR * self._steps / seconds
        return SplitOutcome(
            split=split,
            bound=self.bound(split),
            steps_per_hour=rate,
            standard_error=rate * _relative_error(times),
            waits=waits,
            trainer_paused=pause * self._steps / seconds,
            staleness_mean=sum(steps * count for steps, count in trained.items()) / trained.total(),
            staleness_max=max(trained),
            generator_load=busy_share * (_tokens(pipeline) - tokens) / capacity,
        )

    def search(
        self, splits: list[Split], progress: Callable[[int], None] | None = None
    ) -> SplitSearch:
        """The best of `splits`, which are in order of trainer devices. `progress` gets the number
        simulated so far.

        Raises:
            DeadlockError: a run cannot finish.
        """
        assert splits
        bounds = [self.bound(split) for split in splits]
        outcomes: dict[int, SplitOutcome] = {}
        while (index := _find_next_index(bounds, outcomes)) is not None:
            outcomes[index] = self.simulate(splits[index])
            if progress is not None:
                progress(len(outcomes))
        ordered = tuple(outcomes[simulated_index] for simulated_index in sorted(outcomes))
        best = max(ordered, key=lambda outcome: (outcome.steps_per_hour, -outcome.staleness_mean))
        as_good = tuple(good_outcome for good_outcome in ordered if _is_as_good(good_outcome, best))
        beaten = sum(
            bound <= best.steps_per_hour
            for bound_index, bound in enumerate(bounds)
            if bound_index not in outcomes
        )
        return SplitSearch(
            outcomes=ordered,
            best=best,
            as_good=as_good,
            frugal=min(as_good, key=lambda equal_outcome: equal_outcome.split.trainer_devices),
            beaten=beaten,
            passed_over=len(splits) - len(ordered) - beaten,
        )


def scaled_down(
    num_generators: int, groups_per_step: int, rollouts_per_group: int
) -> tuple[int, int]:
    """Generators and groups of a step of a run that takes seconds to simulate, in nearly the same
    ratio.

    The time grows with the rollouts of a step and, since each generator hears of each version, with
    the square of the generators. Rates of the smaller run are within 1 % of those of the whole.
    """
    # 1,000 rollouts and 64 generators: some seconds of a core. 8 groups: fewer would be uneven.
    scale = max(groups_per_step * rollouts_per_group / 1000, num_generators / 64)
    scale = min(scale, groups_per_step / 8)
    if scale <= 1.0:
        return num_generators, groups_per_step
    fewest = max(1, math.ceil(num_generators / scale))
    # Up to twice as many, for a whole number of groups in nearly the same ratio.
    sizes = [
        (generators, max(1, round(groups_per_step * generators / num_generators)))
        for generators in range(fewest, min(2 * fewest, num_generators) + 1)
    ]
    ratio = groups_per_step / num_generators
    return min(sizes, key=lambda size: abs(size[1] / size[0] / ratio - 1.0))


def _is_as_good(candidate: SplitOutcome, best: SplitOutcome) -> bool:
    """Whether the rate is equal to the best within `EQUAL_RATE_SHARE`, or within the errors of
    both.
    """
    error = math.hypot(candidate.standard_error, best.standard_error)
    rate_tolerance = EQUAL_RATE_SHARE * best.steps_per_hour
    return best.steps_per_hour - candidate.steps_per_hour <= max(
        # Largest relative difference at which two splits are also equally good, if their standard
        # errors are larger. All splits are simulated with the same tasks, so the error of a
        # difference is smaller than the errors of the rates suggest. Chosen, not measured.
        rate_tolerance,
        min(error, 0.10 * best.steps_per_hour),
    )


def _find_next_index(bounds: list[float], outcomes: dict[int, SplitOutcome]) -> int | None:
    """The place to simulate next; None if the best is found."""
    last = len(bounds) - 1
    # Evenly spaced splits that are simulated first. Chosen, not measured.
    num_first_splits = 9
    for number in range(num_first_splits):
        if (index := round(number * last / (num_first_splits - 1))) not in outcomes:
            return index
    best = max(outcomes, key=lambda split_index: outcomes[split_index].steps_per_hour)
    able = [
        able_index
        for able_index, bound in enumerate(bounds)
        if able_index not in outcomes and bound > outcomes[best].steps_per_hour
    ]
    if len(outcomes) + len(able) <= MAX_SIMULATIONS:
        return max(able, key=lambda bound_index: bounds[bound_index], default=None)
    below = max((lower_index for lower_index in outcomes if lower_index < best), default=-1)
    above = min((upper_index for upper_index in outcomes if upper_index > best), default=last + 1)
    near_indices = [near_index for near_index in able if below < near_index < above]
    middles = ((below + best) / 2, (best + above) / 2)
    return min(
        near_indices,
        key=lambda middle_index: min(abs(middle_index - middle) for middle in middles),
        default=None,
    )


def _tokens(pipeline: Pipeline) -> float:
    for generator in pipeline.fleet.generators.values():
        generator.advance(pipeline.now)
    return sum(generator.tokens for generator in pipeline.fleet.generators.values())


def _relative_error(times: list[float]) -> float:
    """Standard error of the mean time between steps, relative to that mean, from the scatter of
    blocks of steps.
    """
    steps = len(times) - 1
    edges = [block * steps // NUM_ERROR_BLOCKS for block in range(NUM_ERROR_BLOCKS + 1)]
    means = [(times[end] - times[start]) / (end - start) for start, end in pairwise(edges)]
    return stdev(means) / math.sqrt(NUM_ERROR_BLOCKS) / fmean(means)
