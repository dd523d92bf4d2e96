"""Does `make near` select the tests that notice a fault, and how long does it take?

    python -m benchmarks.near_fixes fixes --tree FOLDER --number 10 [--before COMMIT]
    python -m benchmarks.near_fixes commits --tree FOLDER --number 10 [--before COMMIT]

FOLDER is a clean checkout, whose commit changes. `fixes` takes the newest commits that change code
of services/ and tests. It puts the older code back, runs the tests of the commit, and says whether
`make near` selects one that fails. Commits whose tests pass with the older code are no fixes and
are passed over. `commits` runs `make near` on the newest commits that touch services/. Both write
results/near.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testkit.record import RESULTS, ROOT, describe_machine
from testkit.suite.changes import git

RESULT = RESULTS / "near.json"
FIX_SECONDS = 300.0
NEAR_SECONDS = 600.0
MAX_FILES = 12
"""Code files of services/ in one fix: larger commits do several things."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["fixes", "commits"])
    parser.add_argument("--tree", type=Path, required=True)
    parser.add_argument("--number", type=int, default=10)
    parser.add_argument("--before", default="HEAD", metavar="COMMIT")
    options = parser.parse_args()
    tree = options.tree.resolve()
    found: list[dict[str, Any]] = []
    for commit in git(
        "log", "--format=%H", "--no-merges", options.before, "--", "services", root=ROOT
    ).split():
        if len(found) == options.number:
            break
        record = fix(commit, tree) if options.kind == "fixes" else near(commit, tree)
        if record is not None:
            print(json.dumps(record), flush=True)
            found.append(record)
    figures = json.loads(RESULT.read_text())["figures"] if RESULT.exists() else {}
    figures[options.kind] = found
    RESULT.write_text(
        json.dumps({"machine": describe_machine(), "figures": figures}, indent=1) + "\n"
    )
    return 0


def fix(commit: str, tree: Path) -> dict[str, Any] | None:
    """What fails of a commit's tests with the code before it,
    and what `make near` selects of that.
    """
    changed = git(
        "diff", "--name-only", "--diff-filter=AM", f"{commit}~1", commit, root=ROOT
    ).split()
    code = [file for file in changed if file.startswith("services/") and file.endswith(".py")]
    tests = [
        file
        for file in changed
        if file.startswith("tests/") and Path(file).name.startswith("test_")
    ]
    modified = git(
        "diff", "--name-only", "--diff-filter=M", f"{commit}~1", commit, "--", *code, root=ROOT
    ).split()
    if not modified or not tests or len(code) > MAX_FILES:
        return None
    base = check_out(commit, tree)
    try:
        git("checkout", "--quiet", f"{commit}~1", "--", *modified, root=tree)
        failing = failures(tests, tree)
        if not failing:
            return None
        listed = near_command(tree, "--list", "--since", base)
        listed.check_returncode()
        selected = listed.stdout.split()
    finally:
        git("reset", "--quiet", "--hard", root=tree)
    noticed = sorted({test.split("::")[0] for test in failing} & set(selected))
    return {
        "commit": commit[:8],
        "subject": subject(commit),
        "failing": failing,
        "selected_files": noticed,
    }


def near(commit: str, tree: Path) -> dict[str, Any]:
    """How long `make near` takes on one commit."""
    base = check_out(f"{commit}~1", tree)
    check_out(commit, tree)
    start = time.monotonic()
    done = near_command(tree, "--since", base)
    seconds = round(time.monotonic() - start, 1)
    if done.returncode not in (0, 1):
        raise SystemExit(
            f"{commit[:8]}: make near ended with {done.returncode}: {done.stderr.strip()}"
        )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    says = [line for line in lines if "test files" in line][:2]
    return {
        "commit": commit[:8],
        "subject": subject(commit),
        "seconds": seconds,
        "says": says,
        "ends": lines[-1:],
    }


def check_out(commit: str, tree: Path) -> str:
    """With today's selection, its options of pytest and the durations, which an earlier commit
    lacks. Returns a commit that has them, so that they are no part of the change.
    """
    git("reset", "--quiet", "--hard", root=tree)
    git("clean", "--quiet", "--force", "-d", "testkit/suite", "tests/durations.json", root=tree)
    git("checkout", "--quiet", "--detach", commit, root=tree)
    shutil.copytree(ROOT / "testkit" / "suite", tree / "testkit" / "suite", dirs_exist_ok=True)
    for file in ("tests/conftest.py", "tests/durations.json"):
        shutil.copy(ROOT / file, tree / file)
    git("add", "testkit/suite", "tests/conftest.py", "tests/durations.json", root=tree)
    identity = ["-c", "user.name=near", "-c", "user.email=near@localhost"]
    git(
        *identity,
        "commit",
        "--quiet",
        "--allow-empty",
        "--no-verify",
        "-m",
        "today's selection",
        root=tree,
    )
    return git("rev-parse", "HEAD", root=tree).strip()


def failures(tests: list[str], tree: Path) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = run(command, tree, FIX_SECONDS)
    except subprocess.TimeoutExpired:
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return [line.split(" - ")[0].split(" ", 1)[1] for line in lines]


def near_command(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "testkit.suite.near", *arguments], tree, NEAR_SECONDS)


def run(command: list[str], tree: Path, seconds: float) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "services"), str(tree)])}
    return subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def subject(commit: str) -> str:
    return git("log", "-1", "--format=%s", commit, root=ROOT).strip()


if __name__ == "__main__":
    sys.exit(main())
