"""The GPUs that a process must have, and why it cannot use them: an old driver, another build, or a
card that failed.

The number is in ROLLCAST_GPUS, which `rollcast up` sets on one machine and the chart in a pod. A
process with that variable never computes on the CPU instead. Imports no torch.
"""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from rollcast.config.errors import PassingError, UserError

EXPECTED_GPUS = "ROLLCAST_GPUS"
"""Environment variable: GPUs that must be usable in this process. Not set = as torch finds them."""
NODE_NAME = "ROLLCAST_NODE"
"""Environment variable with the node's name in a cluster; elsewhere it is the host's."""
DRIVER_VERSION = Path("/proc/driver/nvidia/version")
"""The kernel module's own words, there as soon as it is loaded. A container sees its node's."""
LEAST_DRIVER = {12: 525, 13: 580}
"""Major version of the CUDA that torch was built for -> the first branch of NVIDIA's driver that
runs it."""


def expected_gpus(environment: Mapping[str, str] = os.environ) -> int:
    """0 = none, or the variable is not set."""
    count_text = environment.get(EXPECTED_GPUS, "")
    return int(count_text) if count_text.isdigit() else 0


def node_name(environment: Mapping[str, str] = os.environ) -> str:
    return environment.get(NODE_NAME) or socket.gethostname()


def driver_version(file: Path | None = None) -> str | None:
    """The version of NVIDIA's loaded kernel module; None = it is not loaded.

    `file`: DRIVER_VERSION, unless given.
    """
    try:
        version_text = (file or DRIVER_VERSION).read_text()
    except OSError:
        return None
    # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
    version_match = re.search(
        r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", version_text, re.MULTILINE
    )
    return None if version_match is None else version_match[1]


def is_driver_too_old(cuda: str | None) -> bool:
    """Whether the loaded driver cannot run programs built for this CUDA."""
    version = driver_version()
    if cuda is None or version is None:
        return False
    branch = LEAST_DRIVER.get(int(cuda.split(".")[0]), 0)
    return int(version.split(".")[0]) < branch


def unusable(cuda: str | None, cause: str) -> UserError:
    """The error of a process that cannot use the GPUs that it must have.

    `cuda`: version that torch was built for; None = for no GPU. `cause`: what torch or the driver
    says. A PassingError, after which a supervisor tries again, unless driver or build are the
    reason.
    """
    node = node_name()
    number = os.environ.get(EXPECTED_GPUS)
    need = f"{EXPECTED_GPUS} = {number}" if number else "a process on GPUs"
    if cuda is None:
        return UserError(
            f"{need}: torch is a build for CPUs; install, or take the image of, the build for CUDA"
        )
    if is_driver_too_old(cuda):
        branch = LEAST_DRIVER[int(cuda.split(".")[0])]
        return UserError(
            f"NVIDIA driver {driver_version()} on node {node}: torch's CUDA {cuda} needs R{branch} "
            "or newer; update the driver"
        )
    driver = driver_version() or "not loaded"
    return PassingError(
        f"{need}: node {node} has a GPU that cannot be used ({cause}; driver {driver}); look at "
        "nvidia-smi there, and take the node out of service if the card has failed"
    )
