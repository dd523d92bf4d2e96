"""A real MLflow tracking server, with a database and a folder of artifacts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.local.ports import free_port
from testkit.system.harness import wait_for

START_SECONDS = 300.0


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Start a server, and yield its address once it answers; its store is in `folder`."""
    url = f"http://127.0.0.1:{(port := free_port('127.0.0.1'))}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts")]  # fmt: skip
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            env=os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true",
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        )  # fmt: skip

        def answers() -> bool:
            assert server.poll() is None, (folder / "log").read_text()
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=1.0) as reply:
                    return bool(reply.status == 200)
            except (urllib.error.URLError, OSError):
                return False

        try:
            wait_for(answers, START_SECONDS, "an answer of MLflow's server", every=0.2)
            yield url
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)
