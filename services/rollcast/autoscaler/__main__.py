"""`python -m rollcast.autoscaler --config FILE`"""

import sys

from rollcast.telemetry.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service("autoscaler", "Decides how many generators a run needs."))
