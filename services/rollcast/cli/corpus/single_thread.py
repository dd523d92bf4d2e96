"""One thread for each process of the benchmark, because there is a process for each core.

Imports nothing: NumPy reads the environment when it is loaded.
"""

import os

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables of the libraries under NumPy."""


def use_one_thread() -> None:
    """Call it in a new process before NumPy is loaded."""
    os.environ.update(ONE_THREAD)
