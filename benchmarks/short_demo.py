"""The demo's task in a run short enough to be looked at: higher learning rate, shorter warm-up,
more evaluations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.config.yaml_loader import load_yaml
from rollcast.local.demo.base_model import BaseModel, ensure_base_model

DEMO = Path(__file__).parents[1] / "configs" / "demo.yaml"
LEARNING_RATE = 8e-5


def short_demo(
    run: str, steps: int, *, learning_rate: float = LEARNING_RATE, generators: int = 1
) -> dict[str, Any]:
    """Settings of a run file."""
    demo: dict[str, Any] = load_yaml(DEMO.read_text(), str(DEMO))
    demo |= {"run": run, "budget": {"steps": steps}, "local": {"generators": generators}}
    demo["model"]["path"] = str(ensure_base_model(BaseModel(), lambda share: None))
    demo["tasks"]["evaluation"] |= {"num_prompts": 96, "every_steps": 4}
    demo["recipe"]["optimizer"] = {"learning_rate": learning_rate, "warmup_steps": 10}
    demo["trainer"]["checkpoint_every_steps"] = 20
    return demo
