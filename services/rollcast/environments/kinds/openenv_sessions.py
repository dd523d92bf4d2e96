"""Harness sessions of OpenEnv, each in a process of its own virtual environment."""

from collections.abc import Iterator

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.environments.harness.interpreter import why_unfit
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_function
from rollcast.environments.openenv_sessions import adapter
from rollcast.environments.openenv_sessions.helper import (
    OpenEnvHelper,
    OpenEnvTrace,
)
from rollcast.environments.openenv_sessions.join import traced_loss
from rollcast.environments.traces import (
    SampledRecord,
    TraceDisagreementError,
    TracedLoss,
    UnusableTraceError,
)


def missing(settings: OpenEnvSessionEnvironment, field: str) -> Iterator[str]:
    yield from missing_function(f"{field}.factory", settings.factory)
    if problem := why_unfit(settings.interpreter, adapter, {"factory": settings.factory}):
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: OpenEnvSessionEnvironment, surroundings: Surroundings) -> OpenEnvHelper:
    return OpenEnvHelper(settings, surroundings.variables)


def join(record: SampledRecord, trace: OpenEnvTrace) -> TracedLoss:
    """Raises UnusableTraceError."""
    loss = traced_loss(record, trace)
    if loss is None:
        raise TraceDisagreementError(
            f"has {len(trace.calls)} calls of the model in its trace, which are not among the "
            f"{record.num_turns} that were sampled for it"
        )
    if record.num_turns and len(loss.untrained) == record.num_turns:
        raise UnusableTraceError(f"has a trace that trains none of the {record.num_turns} turns")
    # Stretches without loss of one episode. The record of a sequence has room for 65,536.
    max_ranges = 10_000
    if sum(map(len, loss.masked.values())) > max_ranges:
        raise UnusableTraceError(f"has loss masks of more than {max_ranges} parts")
    return loss
