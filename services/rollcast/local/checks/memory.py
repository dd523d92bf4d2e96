"""Whether every process fits its device, and the host."""

from rollcast.local.checks.check import Reach, Start
from rollcast.local.devices import with_gpus
from rollcast.memory.check import check_memory

SETTINGS = ()


def check(start: Start) -> None:
    if start.device is None:
        return
    config = start.config
    if start.reach is not Reach.SETTINGS:
        config = config.model_copy(update={"local": with_gpus(config.local, start.gpus)})
    start.plan = check_memory(
        config, start.device, ranks=start.ranks, model_config=start.model_config, host=start.host
    )
