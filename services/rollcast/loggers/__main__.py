"""`python -m rollcast.loggers --config FILE`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rollcast.telemetry.service_process import run_service

if TYPE_CHECKING:
    from rollcast.config.run import RunConfig


def serve(config: RunConfig) -> int:
    from rollcast.loggers import service

    return service.serve(config)


if __name__ == "__main__":
    sys.exit(run_service("loggers", "Logs a run to TensorBoard, MLflow or Weights & Biases.", serve))
