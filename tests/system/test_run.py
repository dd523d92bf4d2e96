"""A whole small run through the real system: vLLM, Redis, trainer, weights in flight; then on at
learning rate 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.forked_programs import ForkedPrograms
from testkit.system.harness import System

Metrics = dict[tuple[str, tuple[tuple[str, str], ...]], float]

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(800)]

STEPS, LAG = 12, 4
STILL_STEPS = 50
"""At learning rate 0."""


def test_a_run_of_two_ranks_to_its_exported_model_and_on_with_one_without_a_drift(
    tmp_path: Path, settings: dict[str, Any], programs: ForkedPrograms
) -> None:
    """FSDP over two processes under torchrun: exact log-probs, and a checkpoint that one rank can
    continue.

    It goes on at learning rate 0. Groups of the versions before may still be open then, LAG steps
    at most; after them there are 50 versions of equal weights: whatever was sampled when, trainer
    and generator agree.
    """
    end = STEPS + LAG + STILL_STEPS
    still = {
        "budget": {"steps": end},
        "recipe": settings["recipe"] | {"optimizer": {"learning_rate": 0.0, "warmup_steps": 0}},
        "tasks": settings["tasks"]
        | {"evaluation": settings["tasks"]["evaluation"] | {"every_steps": 50}},
    }
    with System(tmp_path, settings, programs) as system:
        system.start_trainer(ranks=2)
        system.start_generator("g0")
        system.wait_step(10, 240)
        metrics = system.metrics("trainer")
        generator = system.metrics("g0")
        assert system.wait_end(120) == 0, system.log("trainer")[-3000:]
        check_a_finished_run(system, metrics, generator)
        check_the_weights_moved(Path(settings["model"]["path"]), system.run_folder / "model")
        system.config.write_text(yaml.safe_dump(system.settings | still))
        system.start_trainer(resume=True)
        assert system.wait_end(390) == 0, system.log("trainer")[-3000:]
    assert [line["step"] for line in system.steps] == list(range(1, end + 1))
    of_equal_weights = [line for line in system.steps if line["step"] > STEPS + LAG]
    assert len({age for line in of_equal_weights for age in line["staleness_tokens"]}) > 1, (
        "tokens of several versions"
    )
    assert max(line["logprob_gap_max"] for line in of_equal_weights) < 1e-4


def check_a_finished_run(system: System, metrics: Metrics, generator: Metrics) -> None:
    """metrics, generator: the trainer's and the generator's page near the end."""
    assert [line["step"] for line in system.steps] == list(range(1, STEPS + 1))
    evaluations = {line["step"]: line for line in system.lines("evaluations.jsonl")}
    assert set(evaluations) == {0, 5, 10, STEPS}
    for point in evaluations.values():
        assert point["samples"] == 32 * 4
        assert point["missing_prompts"] == 0
    assert evaluations[STEPS]["compute_device_hours"] > evaluations[5]["compute_device_hours"] > 0

    staleness = {
        int(age): tokens
        for line in system.steps
        for age, tokens in line["staleness_tokens"].items()
    }
    assert max(staleness) <= LAG, "a token older than k was trained on"
    fresh = [line for line in system.steps if list(line["staleness_tokens"]) == ["0"]]
    assert fresh
    assert max(line["logprob_gap_max"] for line in fresh) < 1e-4
    outcomes = {
        labels[0][1]: value
        for (name, labels), value in metrics.items()
        if name == "rollcast_groups_total"
    }
    assert outcomes.get("used", 0) > 0
    assert not {"refused", "dead", "stale", "redone", "duplicate", "lost_version"} & {
        outcome for outcome, count in outcomes.items() if count
    }
    assert generator.get(("rollcast_preemptions_total", ()), 0) == 0


def check_the_weights_moved(before: Path, after: Path) -> None:
    from transformers import AutoModelForCausalLM

    models = (AutoModelForCausalLM.from_pretrained(path).parameters() for path in (before, after))
    assert max((old - new).abs().max().item() for old, new in zip(*models, strict=True)) > 1e-4
