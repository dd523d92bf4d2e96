"""`python -m rollcast.forecaster --config FILE`"""

from rollcast.telemetry.process_end import end
from rollcast.telemetry.service_process import run_service

if __name__ == "__main__":
    end(
        run_service(
            "forecaster", "Live forecast of training runs.", flags={"over": "the run has ended"}
        )
    )
