"""`torchrun -m rollcast.trainer --config FILE`: arguments first, torch after."""

import os

from rollcast.telemetry.process_end import end
from rollcast.telemetry.service_process import run_service
from rollcast.trainer.allocator import use_expandable_segments

if __name__ == "__main__":
    use_expandable_segments(os.environ)
    end(
        run_service(
            "trainer",
            "FSDP learner of one run.",
            flags={"resume": "continue from the newest checkpoint"},
            numbers={
                "step": "with --resume: refuse a checkpoint older than the newest of this step"
            },
        )
    )
