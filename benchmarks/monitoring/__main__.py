"""Pictures of the Grafana dashboards, from two real runs, without Grafana.

    python -m benchmarks.monitoring [--steps 150]

Two runs of the demo's task at different learning rates, one after the other, each up to two thirds of its steps, with
a generator killed half-way there, are scraped by a real Prometheus. Then every query of the committed dashboards is
asked as Grafana would ask it, and its answer drawn at its panel's place: docs/images/dashboard-*.png. Needs the
Debian package prometheus; takes some minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.monitoring.drawing import draw
from rollcast.config.yaml_loader import load_yaml
from rollcast.local.base_model import BaseModel, ensure_base_model
from testkit.monitoring.grafana import DASHBOARDS, load
from testkit.monitoring.live_run import live_runs

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
LIMIT_SECONDS = 1_200.0
LEARNING_RATES = {"demo-half-lr": 4e-5, "demo": 8e-5}
"""The last one is what the dashboards of a single run show."""
TARGET = 0.7


def settings(run: str, model: Path, steps: int) -> dict[str, Any]:
    """The demo's, shorter: a higher learning rate, more evaluations."""
    demo = load_yaml((ROOT / "configs" / "demo.yaml").read_text(), "configs/demo.yaml")
    demo |= {"run": run, "budget": {"steps": steps}}
    demo["model"]["path"] = str(model)
    demo["tasks"]["evaluation"] |= {"num_prompts": 96, "every_steps": 4}
    demo["recipe"]["optimizer"] = {"learning_rate": LEARNING_RATES[run], "warmup_steps": 10}
    demo["trainer"]["checkpoint_every_steps"] = 20
    demo["weights"] |= {"heartbeat_timeout_seconds": 15, "bucket_timeout_seconds": 10}
    return {name: value for name, value in demo.items() if name not in ("redis", "rpc")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitoring", description="Draw the dashboards.")
    parser.add_argument("--steps", type=int, default=150, help="optimizer steps of each run")
    steps = parser.parse_args().steps
    model = ensure_base_model(BaseModel(), lambda share: None)
    runs = [settings(run, model, steps) for run in LEARNING_RATES]
    with tempfile.TemporaryDirectory() as folder, live_runs(Path(folder), runs, LIMIT_SECONDS) as recording:
        for path in DASHBOARDS:
            picture = IMAGES / f"dashboard-{path.stem}.png"
            draw(load(path), recording, TARGET, picture)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
