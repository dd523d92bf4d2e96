"""The image that examples/swe builds on: from its Dockerfile, or by debootstrap on a machine
without a registry.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from testkit.containers import podman_command

DOCKERFILE = Path(__file__).parents[1] / "examples" / "swe" / "base"
BUILD_SECONDS = 1_800.0


def make_base_image(image: str, packages: Sequence[str]) -> None:
    """Build it if it is missing. packages: of Debian, for debootstrap.

    ROLLCAST_DEBIAN_MIRROR names a mirror for a machine without a registry.
    Raises CalledProcessError.
    """
    if subprocess.run(podman_command("image", "exists", image), check=False).returncode == 0:
        return
    mirror = os.environ.get("ROLLCAST_DEBIAN_MIRROR")
    if mirror is None:
        build = podman_command("build", "--tag", image, str(DOCKERFILE))
        subprocess.run(build, check=True, timeout=BUILD_SECONDS)
        return
    with tempfile.TemporaryDirectory(prefix="base-image-") as folder:
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
        subprocess.run([*bootstrap, "bookworm", folder, mirror], check=True, timeout=BUILD_SECONDS)
        load = podman_command("import", "-", image)
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(load, stdin=tar.stdout, check=True, timeout=BUILD_SECONDS)
