"""Whether the run's Redis answers, or can be embedded."""

from rollcast.local.checks.check import Start
from rollcast.local.embedded_redis import check_embeddable, wait_until_ready

SETTINGS = ()


def check(start: Start) -> None:
    settings = start.config.redis
    if settings.is_embedded:
        check_embeddable(settings)
    else:
        wait_until_ready(settings)
