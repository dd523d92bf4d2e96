"""`python -m rollcast.autoscaler --config FILE`: arguments first, heavy imports after."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rollcast.config.errors import EXIT_USER_ERROR, UserError


def main() -> int:
    parser = argparse.ArgumentParser(prog="rollcast.autoscaler", description="Decides how many generators a run needs.")
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    arguments = parser.parse_args()
    from rollcast.config.run import load_run_config
    from rollcast.telemetry.logging import configure_logging

    configure_logging("autoscaler")
    try:
        config = load_run_config(arguments.config)
        from rollcast.autoscaler.service import serve

        return serve(config)
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
