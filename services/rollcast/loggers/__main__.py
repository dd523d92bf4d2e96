"""`python -m rollcast.loggers --config FILE`"""

import sys

from rollcast.telemetry.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service("loggers", "Logs a run to TensorBoard, MLflow or Weights & Biases."))
