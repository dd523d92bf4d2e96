"""`trainer.compile: auto`: results of `benchmarks.gpu learner-*`, and the decision by them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pydantic import TypeAdapter

from documents.compilation import compilation_table
from rollcast.trainer.learner.compilation import CompiledCard, decide, decide_automatically
from testkit.gpu import learner

H200 = "NVIDIA H200"
EXACT = {"logprob_error_mean": 0.02, "logprob_error_max": 0.17, "gradient_error": 0.05}


def row(variant: str, seconds: float, first_seconds: float, **changes: object) -> dict[str, object]:
    assert variant in learner.VARIANTS
    times = {"step_seconds_median": seconds, "first_seconds": first_seconds}
    return {"variant": variant, "all_applied": True, **EXACT, **times, **changes}


def write(folder: Path, name: str, *rows: dict[str, object], small: bool = False) -> None:
    figures = {"small": small, "card": {"name": H200}, "shape": "4b", "rows": rows}
    (folder / f"gpu-{name}.json").write_text(json.dumps({"figures": figures}))


def cards(folder: Path) -> tuple[CompiledCard, ...]:
    return TypeAdapter(tuple[CompiledCard, ...]).validate_json(compilation_table(folder))


def test_exact_and_faster_steps_turn_it_on_for_that_card_alone(tmp_path: Path) -> None:
    write(tmp_path, "learner-4b", row("recomputed", 3.0, 5.0), row("selective", 2.4, 5.0))
    compiled = row("compiled, recomputed", 2.0, 95.0), row("compiled, selective", 2.0, 40.0)
    write(tmp_path, "learner-4b-compiled", *compiled)
    (card,) = measured = cards(tmp_path)
    assert (card.speed_ratio, card.warm_up_seconds, card.is_exact) == (1.2, 90.0, True)
    compiles, reason = decide_automatically(None, H200, measured)
    assert compiles
    assert "1.20 times as fast or more (gpu-learner-4b and gpu-learner-4b-compiled)" in reason
    assert "90 s longer" in reason
    for obstacle, name in (("no layers", H200), (None, "NVIDIA L40S"), (None, None)):
        assert not decide_automatically(obstacle, name, measured)[0]


@pytest.mark.parametrize(
    "changes", [{"gradient_error": 0.07}, {"logprob_error_max": 0.4}, {"all_applied": False}]
)
def test_less_exact_steps_leave_it_off(tmp_path: Path, changes: dict[str, object]) -> None:
    write(tmp_path, "learner-x", row("plain", 3.0, 5.0), row("compiled", 1.0, 9.0, **changes))
    assert decide_automatically(None, H200, cards(tmp_path)) == (
        False,
        "compiled steps on an NVIDIA H200 were less exact (gpu-learner-x)",
    )


def test_results_without_a_pair_or_gain_leave_it_off(tmp_path: Path) -> None:
    write(tmp_path, "learner-x", row("plain", 3.0, 5.0), row("compiled, packed", 1.0, 9.0))
    write(tmp_path, "learner-y", row("plain", 3.0, 5.0), row("compiled", 1.0, 9.0), small=True)
    assert cards(tmp_path) == ()
    write(tmp_path, "learner-x", row("plain", 3.0, 5.0), row("compiled", 2.9, 9.0))
    assert not decide_automatically(None, H200, cards(tmp_path))[0]


def test_a_machine_without_a_gpu_does_not_compile() -> None:
    model, device = torch.nn.Module(), torch.device("cpu")
    model._no_split_modules = ()  # type: ignore[assignment]
    sentence = "trainer.compile = auto: off, since there is no GPU"
    assert decide("auto", model, device) == (False, sentence)
    assert decide(True, model, device) == (True, "trainer.compile = true")
