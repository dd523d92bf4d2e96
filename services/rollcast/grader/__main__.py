"""`python -m rollcast.grader --config FILE`: arguments first, heavy imports after."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rollcast.config.errors import EXIT_USER_ERROR, UserError


def main() -> int:
    parser = argparse.ArgumentParser(prog="rollcast.grader", description="Grades completions for generators.")
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    arguments = parser.parse_args()
    from rollcast.config.run import load_run_config
    from rollcast.telemetry.logging import configure_logging

    configure_logging("grader")
    try:
        config = load_run_config(arguments.config)
        from rollcast.grader.service import serve

        return serve(config)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
