"""A taskset of verifiers, which plays the rollouts in its own virtual environment."""

from collections.abc import Iterator

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.harness.interpreter import why_unfit
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.traces import SampledRecord, TraceDisagreementError, TracedLoss
from rollcast.environments.verifiers import adapter
from rollcast.environments.verifiers.helper import (
    VerifiersHelper,
    VerifiersTrace,
)
from rollcast.environments.verifiers.join import STOPS, untrained_turns


def missing(settings: VerifiersEnvironment, field: str) -> Iterator[str]:
    if problem := why_unfit(settings.interpreter, adapter, {"taskset": settings.taskset}):
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: VerifiersEnvironment, surroundings: Surroundings) -> VerifiersHelper:
    return VerifiersHelper(settings, surroundings.variables)


def join(record: SampledRecord, trace: VerifiersTrace) -> TracedLoss:
    """Raises TraceDisagreementError."""
    untrained = untrained_turns(record.read_turns, trace)
    if untrained is None:
        raise TraceDisagreementError(
            f"has {len(trace.answers)} answers of the model in its trace, which are not the "
            f"{len(record.read_turns)} that were sampled for it"
        )
    return TracedLoss(frozenset(untrained), end=STOPS.get(trace.stop_condition))
