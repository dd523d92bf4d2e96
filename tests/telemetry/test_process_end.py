"""A program that ends by `end`, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from rollcast.telemetry.process_end import end

class Taken:
    def __del__(self):
        Path("taken apart").touch()

kept = Taken()
pool = ThreadPoolExecutor(1)  # whose worker waits for more, and nobody shuts it down
assert pool.submit(lambda: 1).result() == 1
atexit.register(Path("said goodbye").touch)
threading.Thread(target=lambda: (time.sleep(0.5), Path("thread").touch())).start()
threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
print("the last line", end="")
print("of both", file=sys.stderr, end="")
end(CODE)
"""


@pytest.mark.parametrize("code", [0, 2, 143])
def test_all_is_done_that_a_programs_end_does_but_what_it_made_is_left_alone(
    tmp_path: Path, code: int
) -> None:
    program = PROGRAM.replace("CODE", str(code))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "the last line", "of both")
    assert {path.name for path in tmp_path.iterdir()} == {"said goodbye", "thread"}


def test_an_output_that_nobody_reads_does_not_change_the_code() -> None:
    program = "from rollcast.telemetry.process_end import end; print('x'); end(3)"
    environment = os.environ | {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 3
