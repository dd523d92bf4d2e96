"""The process of a service whose argument is a run file:
it parses arguments before heavy imports.
"""

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from rollcast.config.errors import UserError
from rollcast.telemetry.heavy_imports import pause_garbage_collection


def run_service(
    name: str,
    description: str,
    *,
    flags: Mapping[str, str] = MappingProxyType({}),
    numbers: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Parse `--config FILE`, run the service, return the exit code. A UserError is one sentence on
    standard error.

    `serve(config)` of `rollcast.NAME.service` runs the service, handles signals and returns the
    exit code. Its module is imported once the run file is known to be right. `flags`, `numbers`:
    further options, each with its help, without a value and with a whole number; `serve` gets their
    values by name, None for a number that is left out.
    """
    parser = argparse.ArgumentParser(prog=f"rollcast.{name}", description=description)
    parser.add_argument("--config", type=Path, required=True, help="the run file")
    for flag, explanation in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=explanation)
    for number, explanation in numbers.items():
        parser.add_argument(f"--{number}", type=int, help=explanation)
    arguments = parser.parse_args()
    from rollcast.config.run import load_run_config
    from rollcast.telemetry.logging import configure_logging

    configure_logging(name)
    try:
        config = load_run_config(arguments.config)
        with pause_garbage_collection():
            service = importlib.import_module(f"rollcast.{name}.service")
        return int(
            service.serve(config, **{flag: getattr(arguments, flag) for flag in (*flags, *numbers)})
        )
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
