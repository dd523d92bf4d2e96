"""The process of a service whose only argument is a run file: it parses arguments before heavy imports."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.config.run import RunConfig


def run_service(name: str, description: str, serve: Callable[[RunConfig], int]) -> int:
    """Parse `--config FILE`, run `serve`, return the exit code. A UserError is one sentence on standard error.

    `serve` does the heavy imports and handles signals.
    """
    parser = argparse.ArgumentParser(prog=f"rollcast.{name}", description=description)
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    arguments = parser.parse_args()
    from rollcast.config.run import load_run_config
    from rollcast.telemetry.logging import configure_logging

    configure_logging(name)
    try:
        return serve(load_run_config(arguments.config))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
