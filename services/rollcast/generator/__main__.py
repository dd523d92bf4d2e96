"""`python -m rollcast.generator --config FILE [--name NAME]`"""

import argparse
import gc
import socket
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.runfolder.run_secrets import with_run_secrets
from rollcast.telemetry.process_end import end


def main() -> int:
    """Parse and check the arguments, then import the heavy modules."""
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.generator", description="Samples and grades rollouts."
    )
    parser.add_argument("--config", type=Path, required=True, help="run file")
    parser.add_argument(
        "--name",
        default=socket.gethostname(),
        help="of this generator, unique in the run; default: the host's name",
    )
    parser.add_argument(
        "--index", type=int, default=0, help="among the generators of this machine, from 0"
    )
    parser.add_argument(
        "--park",
        action="store_true",
        help="if there is too little memory, stay without an engine and report it on /readyz, "
        "instead of ending: for a "
        "supervisor that would restart it endlessly, as a Deployment does",
    )
    arguments = parser.parse_args()
    try:
        config = with_run_secrets(load_run_config(arguments.config))

        from rollcast.generator.service import serve
        from rollcast.telemetry.logging import configure_logging

        configure_logging(arguments.name)
        return serve(config, arguments.name, arguments.index, park=arguments.park)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__mp_main__":
    # an engine's child, before it imports vLLM; `plugin.register` ends it, see
    # telemetry/heavy_imports.py
    gc.disable()

if __name__ == "__main__":
    end(main())
