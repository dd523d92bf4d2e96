"""`torchrun -m rollcast.trainer --config FILE`: arguments first, torch after."""

from rollcast.telemetry.process_end import end
from rollcast.telemetry.service_process import run_service

if __name__ == "__main__":
    end(run_service("trainer", "FSDP learner of one run.", flags={"resume": "continue from the newest checkpoint"}))
