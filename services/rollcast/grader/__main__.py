"""`python -m rollcast.grader --config FILE`"""

import sys

from rollcast.telemetry.service_process import run_service

if __name__ == "__main__":
    sys.exit(run_service("grader", "Grades completions for generators."))
