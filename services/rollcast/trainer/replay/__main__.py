"""`python -m rollcast.trainer.replay RUN --step N`: arguments and torch after the environment."""

import os
import sys

from rollcast.telemetry.process_end import end


def main() -> int:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported: a replay needs no GPU
    try:
        from rollcast.trainer.replay.program import main as replay
    except ModuleNotFoundError as error:
        print(
            f"error: a replay needs the trainer's packages ({error.name} is missing); install "
            "them: pip install 'rollcast[trainer]'",
            file=sys.stderr,
        )
        return 2
    return replay()


if __name__ == "__main__":
    end(main())
