"""`torchrun -m rollcast.trainer --config FILE`: arguments first, torch after."""

import argparse
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.telemetry.process_end import end


def main() -> int:
    parser = argparse.ArgumentParser(prog="rollcast.trainer", description="FSDP learner of one run.")
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    parser.add_argument("--resume", action="store_true", help="continue from the newest checkpoint")
    arguments = parser.parse_args()
    from rollcast.config.run import load_run_config
    from rollcast.telemetry.heavy_imports import uncollected
    from rollcast.telemetry.logging import configure_logging

    configure_logging("trainer")
    try:
        config = load_run_config(arguments.config)
        with uncollected():
            from rollcast.trainer.service import serve

        return serve(config, resume=arguments.resume)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    end(main())
