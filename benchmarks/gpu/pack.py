"""Pack this repository, vLLM and what both need into one archive, for a machine with a card and
without a network.

    python -m benchmarks.gpu.pack OUT.tar.xz [--python 3.12] [--architecture 90]
                                             [--already-there FILE]

There:

    mkdir /tmp/proof && tar xJf OUT.tar.xz -C /tmp/proof && . /tmp/proof/surroundings && cd $PROOF
    python3 -m benchmarks.gpu --minutes 9 --out FOLDER

Needs pip with a package index here, and there a Python that has PyTorch for CUDA and Transformers.
The models of the demo and of examples/calculator are trained here if they are not cached, so that
no minutes of the card go into that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.gpu.packing.archive import (
    ALREADY_THERE,
    compress,
    download,
    fill,
    names_in,
    wanted_packages,
)
from testkit.gpu.system_today import ensure_example

MAX_MEBIBYTES = 64
"""What a lent machine takes, other files included; a larger archive is reported."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.tar.xz")
    parser.add_argument("--python", default="3.12", help="Python of that machine; default 3.12")
    parser.add_argument(
        "--architecture", type=int, default=90, help="of its card; default 90, an H100 or H200"
    )
    parser.add_argument(
        "--already-there", type=Path, default=ALREADY_THERE, metavar="FILE", help="packages it has"
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="keeps the downloads for another call"
    )
    arguments = parser.parse_args()
    cached = [ensure_base_model(BaseModel(), lambda _: None), ensure_example()]
    with tempfile.TemporaryDirectory() as folder:
        wheels = arguments.wheels or Path(folder, "wheels")
        packed = Path(folder, "packed")
        download(wanted_packages(names_in(arguments.already_there)), arguments.python, wheels)
        fill(packed, wheels, cached, arguments.architecture)
        compress(packed, arguments.out)
    size = arguments.out.stat().st_size / 2**20
    print(
        f"{arguments.out}: {size:.1f} MiB; a lent machine may take {MAX_MEBIBYTES} MiB, other "
        "files included"
    )
    return 0 if size <= MAX_MEBIBYTES else 1


if __name__ == "__main__":
    sys.exit(main())
