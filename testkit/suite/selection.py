"""Which test files a call of pytest collects, and in which groups and order they run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from testkit.suite.durations import middle_seconds
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import tests_of_proofs

CORE = "core"
GROUPS: dict[str, str] = {
    # Systems keep a core busy each, and two of them would only wait for each other's deadlines.
    "tests/system": "systems",
    # They fork the same programs.
    "tests/generator/test_service.py": "systems",
    "tests/generator/test_main.py": "systems",
    # Files that render the same charts; the four others render few.
    **{
        f"tests/chart/test_{name}.py": f"chart {name}"
        for name in ("memory", "balance", "grader", "environments")
    },
    "tests/chart": "charts",
    # Files that read every source.
    **{
        f"tests/test_{name}.py": "sources"
        for name in ("plainness", "plain_names", "sizes", "names", "signatures")
    },
    "tests/documents/test_pages.py": "sources",
    # Files that count the weights of the same models.
    "tests/memory": "model shapes",
    "tests/throughput": "model shapes",
    "tests/local/test_one_gpu.py": "model shapes",
    # Files that import vLLM, which takes eight seconds, and share its engines.
    "tests/generator/endpoint": "engines",
    **{
        f"tests/generator/test_{name}.py": "engines"
        for name in ("exactness", "agreement", "preemption", "episodes", "vocabulary")
    },
    # Files whose programs are forked of one process with torch and the trainer.
    **{
        f"tests/trainer/test_{name}.py": "ranks"
        for name in (
            "checkpoint",
            "lora",
            "machines",
            "own_loss",
            "replicas",
            "sharded_start",
            "two_ranks",
        )
    },
    # They count the containers of this machine.
    "tests/environments/containers": "containers",
    "tests/environments/harbor/test_play.py": "containers",
    # The same for services without torch.
    "tests/forecaster": "services",
    "tests/autoscaler": "services",
}
"""Test file or folder -> the group that it runs in, if that is not the file alone."""


def files_to_ignore(names: str) -> frozenset[str]:
    """Proof files that are left out by `--proofs NAMES`: `core` = all of them; else those of other
    proofs.
    """
    chosen = set(names.split(","))
    return tests_of_proofs([proof for proof in PROOFS if proof.name not in chosen])


def group_of_file(file: str) -> str:
    """Tests of one group run in one process, one after the other.

    A file is one group, so that what its module or session fixtures started serves all of its
    tests.
    """
    return next(
        (
            group
            for test_path, group in GROUPS.items()
            if file == test_path or file.startswith(f"{test_path}/")
        ),
        file,
    )


def seconds_of_groups(files: Collection[str], durations: Mapping[str, float]) -> dict[str, float]:
    """Group -> seconds of its files; a file without an entry counts as the middle one."""
    middle = middle_seconds(dict(durations))
    seconds: dict[str, float] = {}
    for file in files:
        group = group_of_file(file)
        seconds[group] = seconds.get(group, 0.0) + durations.get(file, middle)
    return seconds
