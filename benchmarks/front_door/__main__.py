"""python -m benchmarks.front_door: size of the base installation, seconds of `import`, `--help` and
`fit`; seconds and memory of `fit` of a million rows.

Each time is the least of five processes. The size is that of the files of pyproject.toml's
dependencies and of all that they need, as they are installed here, without bytecode and without
pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from testkit.base_install import base_bytes
from testkit.forecaster.recorded_run import record
from testkit.record import write_result

REPEATS = 5
NUM_ROWS = 1_000_000
COMMAND = ["-m", "rollcast.cli.main"]


def seconds(*arguments: str) -> float:
    """Least wall time of a process."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return min(times)


def seconds_and_megabytes(*arguments: str) -> tuple[float, float]:
    """Least wall time of a process, and the most memory that it held."""
    times, most = [], 0
    for _ in range(REPEATS):
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        times.append(time.perf_counter() - began)
        assert os.waitstatus_to_exitcode(status) == 0
        most = max(most, usage.ru_maxrss)
    return min(times), most * 1024 / 1e6


def long_curve(num_rows: int) -> list[tuple[int, float]]:
    """Steps and noisy readings of a law that bends within them."""
    step = np.arange(1, num_rows + 1)
    law = 0.1 + 0.5 / (1 + (0.15 * num_rows / step) ** 1.2)
    noisy = law + np.random.default_rng(0).normal(0.0, 0.02, num_rows)
    return list(zip(step.tolist(), noisy.round(6).tolist(), strict=True))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        curve = Path(folder) / "curve.csv"
        curve.write_text(
            "compute,pass_rate\n" + "".join(f"{r.compute},{r.pass_rate}\n" for r in record())
        )
        rows = long_curve(NUM_ROWS)
        long_csv, long_jsonl = Path(folder) / "long.csv", Path(folder) / "long.jsonl"
        long_csv.write_text("step,pass_rate\n" + "".join(f"{step},{rate}\n" for step, rate in rows))
        long_jsonl.write_text(
            "".join(f'{{"step": {step}, "pass_rate": {rate}}}\n' for step, rate in rows)
        )
        figures = {
            "base_megabytes": round(base_bytes() / 1e6, 1),
            "import_seconds": seconds("-c", "import rollcast"),
            "import_and_forecast_ready_seconds": seconds(
                "-c", "import rollcast; rollcast.forecast"
            ),
            "help_seconds": seconds(*COMMAND, "--help"),
            "fit_seconds": seconds(*COMMAND, "fit", str(curve), "--json"),
        }
        for name, path in (("million_rows_csv", long_csv), ("million_rows_jsonl", long_jsonl)):
            took, held = seconds_and_megabytes(*COMMAND, "fit", str(path), "--json")
            figures |= {f"{name}_seconds": took, f"{name}_megabytes": round(held)}
    for name, value in figures.items():
        print(f"{name}: {value:.3g}")
    print(write_result("front_door", figures))


if __name__ == "__main__":
    main()
