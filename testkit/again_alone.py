"""The few tests that failed next to others run again, alone: `python -m testkit.again_alone`, after pytest.

Three test processes share two cores, and other work may run on the machine. A test that fails there and passes alone
depends on the load. It must be fixed, and its first failure stays on the screen; but it says nothing of the code, so it
does not fail the whole. One that fails again fails the whole, as does every failure if there are many.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
"""pytest's own record of a call: the ids of the tests that failed."""
MAX_TESTS = 5
"""More failures are no matter of load."""


def main() -> int:
    failed = list(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.exists() else []
    if not 0 < len(failed) <= MAX_TESTS:
        return 1
    print(f"{len(failed)} failed next to other tests and run again, alone: {', '.join(failed)}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *failed], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
