"""examples/swe with a tiny model: mini-swe-agent in containers of ten repositories.

    python -m benchmarks.swe [--episodes 100]

The model calls `bash` with one command, which repairs the repository every second time
(`repairs`). `rollcast up` plays the example's own run file and agent, with a tiny model and small
budgets. Writes results/swe.json. Exit status 1 if fewer episodes ended than asked for, one was
lost, a container, process or folder is left, the disk grew by more than a container's files, or
`rollcast audit` finds a defect. Needs podman, and root or control groups of version 2.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from benchmarks.clients.__main__ import install
from benchmarks.clients.scripted_model import write_scripted_model
from benchmarks.clients.table import Client
from benchmarks.swe.repairs import repair_command
from testkit.base_image import make_base_image
from testkit.containers import our_containers, podman, runtime
from testkit.record import write_result

EXAMPLE = Path(__file__).parents[2] / "examples" / "swe"
AGENT = Client("mini-swe-agent", "mini-swe-agent", "chat", "bash")
LIMIT_SECONDS = 3_000.0
ROLLOUTS_PER_PROMPT = 4
PROMPTS_PER_STEP = 2
MAX_DISK_GROWTH_MIB = 64


def run_settings(num_episodes: int) -> dict[str, Any]:
    """The example's run file for a tiny model on two cores."""
    settings: dict[str, Any] = yaml.safe_load((EXAMPLE / "run.yaml").read_text())
    num_steps = -(-num_episodes // (ROLLOUTS_PER_PROMPT * PROMPTS_PER_STEP))
    environment = settings["tasks"]["environments"][0]
    environment["container"] = environment["container"] | {"runtime": runtime()}
    settings["tasks"]["evaluation"] = {
        "num_prompts": 2, "rollouts_per_prompt": 1, "every_steps": num_steps,
    }  # fmt: skip
    return settings | {
        "model": {"path": "model", "dtype": "float32", "max_length": 8_192},
        "recipe": {
            "prompts_per_step": PROMPTS_PER_STEP,
            "rollouts_per_prompt": ROLLOUTS_PER_PROMPT,
            "max_prompt_tokens": 512,
            "max_completion_tokens": 6_000,
            "length_control": {"kind": "none"},
            "episodes": {"max_turns": 4, "max_seconds": 300},
            "optimizer": {"learning_rate": 1e-5, "warmup_steps": 1},
        },
        "generator": {"slots": 4, "block_size": 32, "cpu_kv_cache_gib": 1},
        "trainer": {"threads": 1},
        "budget": {"steps": num_steps},
    }


def play(folder: Path, num_episodes: int) -> dict[str, Any]:
    """Run the example in a folder, and look for remains."""
    for name in ("agent.py", "make_tasks.py"):
        shutil.copy(EXAMPLE / name, folder)
    subprocess.run([sys.executable, "make_tasks.py"], cwd=folder, check=True)
    write_scripted_model(
        folder / "model", "bash", {"command": repair_command()}, "It is repaired.", 8_192
    )
    (folder / "agents").symlink_to(install(AGENT))
    rollcast = [sys.executable, "-m", "rollcast.cli.main"]
    with (folder / "swe.jsonl").open("w") as rows:
        command = [sys.executable, "-m", "rollcast.environments.harbor", "tasks"]
        subprocess.run(command, cwd=folder, stdout=rows, check=True)
    (folder / "run.yaml").write_text(yaml.safe_dump(run_settings(num_episodes)))
    variables = os.environ | {"TMPDIR": str(folder / "temporary")}
    (folder / "temporary").mkdir()
    # Images are built before anything is measured.
    check = [*rollcast, "config", "check", "run.yaml"]
    subprocess.run(check, cwd=folder, env=variables, check=True)
    disk_before = _disk_mib()
    containers_before = our_containers()
    began = time.monotonic()
    ended = subprocess.run(
        [*rollcast, "up", "--config", "run.yaml"], cwd=folder, env=variables,
        capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"rollcast up: {ended.stdout[-2_000:]}{ended.stderr[-2_000:]}")
    (run,) = (folder / "runs").iterdir()
    audit = subprocess.run(
        [*rollcast, "audit", str(run)], cwd=folder, capture_output=True, text=True, check=False
    )
    return {
        "seconds": round(seconds, 1),
        **_episodes(run),
        "audit_exit_status": audit.returncode,
        "audit": audit.stdout[-400:],
        "containers_left": len(our_containers() - containers_before),
        "processes_left": _processes_with(str(folder)),
        "folders_left": sorted(path.name for path in (folder / "temporary").glob("rollcast-*")),
        "disk_growth_mib": round(_disk_mib() - disk_before, 1),
    }


def _episodes(run: Path) -> dict[str, Any]:
    """Ends of the episodes that the trainer has seen, and rewards of those that it used."""
    ends: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for line in (run / "tasks.jsonl").read_text().splitlines():
        event = json.loads(line)
        ends.update(event.get("episodes", {}))
        failures.update(event.get("failures", {}))
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    rewards = [step["reward_mean"] for step in steps]
    return {
        "episodes": ends.total(),
        "ends": ends,
        "failures": failures,
        "steps": len(steps),
        "mean_reward": round(statistics.mean(rewards), 3),
    }


def _disk_mib() -> float:
    """What podman's storage takes."""
    root = podman("info", "--format", "{{.Store.GraphRoot}}").stdout.decode().strip()
    used = subprocess.run(["du", "-sm", root], capture_output=True, text=True, check=False)
    return float(used.stdout.split()[0])


def _processes_with(text: str) -> int:
    """Processes whose command names the folder."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += text.encode() in path.read_bytes()
        except OSError:
            continue
    return count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    make_base_image("localhost/rollcast-swe:1", ("python3-pytest", "git"))
    with tempfile.TemporaryDirectory(prefix="swe-") as folder:
        row = play(Path(folder), arguments.episodes)
    targets = {
        "as many episodes as asked for": row["episodes"] >= arguments.episodes,
        "none is lost": not row["failures"] and "failed" not in row["ends"],
        "no container, process or folder is left": not (
            row["containers_left"] or row["processes_left"] or row["folders_left"]
        ),
        "the disk has not grown": row["disk_growth_mib"] < MAX_DISK_GROWTH_MIB,
        "the audit finds no defect": row["audit_exit_status"] == 0,
    }
    write_result("swe", {"targets": targets, **row})
    print(json.dumps({"targets": targets, **row}, indent=1))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
