"""The C++ compiler that torch needs where vLLM samples on a CPU."""

import os
import shutil

from rollcast.config.errors import UserError
from rollcast.local.checks.check import Start

SETTINGS = ()


def check(start: Start) -> None:
    """Torch reads CXX, else g++."""
    compiler = os.environ.get("CXX") or "g++"
    if start.config.local.generators and not start.gpus and shutil.which(compiler) is None:
        raise UserError(
            f"CXX = {compiler}: there is no such C++ compiler on the path, and vLLM needs one on a "
            "CPU; install it "
            "(Debian's package is g++), or name another in the environment variable CXX"
        )
