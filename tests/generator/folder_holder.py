"""Stands for a generator: `python -m tests.generator.folder_holder NAME` holds an engine's folder,
and a process that the engine would be, with NAME among its words, and shared memory. Prints the
folder's name; lives on.
"""

from __future__ import annotations

import subprocess
import sys
import time
from multiprocessing.shared_memory import SharedMemory

from rollcast.generator.vllm.engine_folder import EngineFolder
from rollcast.telemetry.logging import configure_logging

if __name__ == "__main__":
    configure_logging("generator")
    folder = EngineFolder()
    with folder.environment():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]])
    shared = SharedMemory(create=True, size=1)
    print(folder.path.name, flush=True)
    time.sleep(600)
