"""`python -m rollcast.forecaster --config FILE`"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollcast.telemetry.heavy_imports import uncollected
from rollcast.telemetry.process_end import end
from rollcast.telemetry.service_process import run_service

if TYPE_CHECKING:
    from rollcast.config.run import RunConfig


def serve(config: RunConfig) -> int:
    with uncollected():  # the imports allocate so much that the garbage collector would scan them several times
        from rollcast.forecaster import service

    return service.serve(config)


if __name__ == "__main__":
    end(run_service("forecaster", "Live forecast of training runs.", serve))
