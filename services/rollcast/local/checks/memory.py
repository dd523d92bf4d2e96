"""Whether every process fits its device and the host, and whether rollouts will be preempted."""

from collections.abc import Iterable

from rollcast.local.checks.check import Finding, Reach, Start, warnings
from rollcast.local.devices import with_gpus
from rollcast.memory import verdict
from rollcast.memory.check import check_memory
from rollcast.memory.plan import MemoryPlan
from rollcast.throughput.assumptions import Assumptions
from rollcast.throughput.balance import predict
from rollcast.throughput.card import find_card
from rollcast.throughput.sentences import full_cache

SETTINGS = ()


def check(start: Start) -> Iterable[Finding]:
    if start.device is None:
        return ()
    config = start.config
    # Another machine has GPUs of its own: only the settings and options say how many.
    if start.reach is not Reach.SETTINGS:
        config = config.model_copy(update={"local": with_gpus(config.local, start.gpus)})
    start.plan = check_memory(
        config, start.device, ranks=start.ranks, model_config=start.model_config, host=start.host
    )
    if start.plan is None:
        return ()
    return warnings((start.expected or _expected_usually)(start.plan))


def _expected_usually(plan: MemoryPlan) -> Iterable[str]:
    if plan.device.kind == "cpu":
        return verdict.warnings(plan)
    card = find_card(plan.device.num_bytes)
    return full_cache(predict(plan, card, plan.generators or 1, Assumptions()))
