"""Other people's agents, as they are, against the endpoint: are they matched, and are their tokens
exact?

    python -m benchmarks.clients [--record] [NAME ...]

Each client is installed into an environment of its own in the cache (PyPI or npm), and plays two
episodes, or more until the tool was called, with a real engine and a tiny model that calls it
(`scripted_model`). Writes results/clients.json: turns, calls, further sequences, refused and
replaced settings, other hosts that it asks (by strace, if that is there), and the largest
difference of a log-prob from plain Transformers. Exit status 1 if a client fails, needs a further
sequence although it does not rewrite its history, is not exact within 1e-4, or asks other hosts
although it should not. `python -m documents` writes the table of docs/episodes.md from it.

--record also writes the requests of the longer episode, without the client's own texts, to
tests/generator/endpoint/client_requests/. A core test sends them again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.clients.table import CLIENTS, Client
from testkit.record import write_result

CACHE = Path(__file__).parents[2] / ".cache" / "clients"
INSTALL_SECONDS = 900.0
PLAY_SECONDS = 1_200.0
MAX_ERROR = 1e-4
RECORDINGS = Path(__file__).parents[2] / "tests" / "generator" / "endpoint" / "client_requests"
RECORD = "--record"


def install(client: Client) -> Path:
    """The folder with the client; installed once for each list of packages."""
    folder = CACHE / "".join(
        letter if letter.isalnum() else "-" for letter in " ".join(client.packages)
    )
    if (folder / "installed").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if client.from_npm:
        commands = [
            ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *client.packages]
        ]
    else:
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        commands = [[sys.executable, "-m", "venv", str(folder)], [*pip, *client.packages]]
    for command in commands:
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
    (folder / "installed").touch()
    return folder


def play(client: Client, *, is_recorded: bool) -> dict[str, Any]:
    try:
        folder = install(client)
        command = [sys.executable, "-m", "benchmarks.clients.play", client.name, str(folder)]
        if is_recorded:
            command.append(str(RECORDINGS / f"{client.file_name}.json"))
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False
        )
    except (subprocess.SubprocessError, OSError) as error:
        return {"client": client.name, "failed": str(error)[-500:]}
    if ended.returncode != 0:
        return {"client": client.name, "failed": (ended.stdout + ended.stderr)[-1_500:]}
    row: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return row


def is_good(client: Client, row: dict[str, Any]) -> bool:
    return (
        "failed" not in row
        and "failed" not in row["ends"]
        and set(row["further_sequences"]) <= ({"rewritten"} if client.rewrites_history else set())
        # Without strace it is not known.
        and (not client.stays_here or row["other_hosts"] == {})
        and (row["tool_calls"] > row["malformed_calls"] or not row["calls_tools"])
        and row["largest_logprob_error"] < MAX_ERROR
    )


def main() -> int:
    names = [name for name in sys.argv[1:] if name != RECORD]
    chosen = [
        client for client in CLIENTS if not names or any(name in client.name for name in names)
    ]
    rows = []
    for client in chosen:
        rows.append(play(client, is_recorded=RECORD in sys.argv))
        rows[-1]["good"] = is_good(client, rows[-1])
        print(json.dumps(rows[-1]), flush=True)
    targets = {
        "each is matched without a further sequence, except where it rewrites its history, and "
        "exact": all(row["good"] for row in rows)
    }
    if len(chosen) == len(CLIENTS):
        write_result("clients", {"targets": targets, "rows": rows})
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
