"""The run files of worlds that are shipped as examples: right, and they fit the cards that they
name.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rollcast.config.run import load_run_config
from testkit.model_shapes import write_model
from testkit.published_models import QWEN3_8B, QWEN3_32B
from tests.cli import command

EXAMPLES = Path(__file__).parents[2] / "examples"
CODE_ROW = {
    "problem": "Print 42.",
    "tests": json.dumps([{"input": "", "output": "42"}]),
    "source": "codeforces",
}
QUESTION = {"answer": "42"}


@pytest.mark.parametrize(
    "file", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda file: f"{file.parent.name}/{file.stem}"
)
def test_a_run_file_of_an_example_is_right(file: Path) -> None:
    assert load_run_config(file).tasks.environments


@pytest.mark.parametrize("world", ["search", "code"])
def test_a_world_at_8b_passes_the_check_and_fits_its_cards(world: str, tmp_path: Path) -> None:
    settings = yaml.safe_load((EXAMPLES / "8b" / f"{world}.yaml").read_text())
    model = tmp_path / "model"
    write_model(model, QWEN3_8B)
    (model / "config.json").write_text(
        json.dumps(QWEN3_8B | {"architectures": ["Qwen3ForCausalLM"]})
    )
    settings["model"]["path"] = str(model)
    rows = tmp_path / "rows.jsonl"
    asked = CODE_ROW if world == "code" else QUESTION
    field = "problem" if world == "code" else "prompt"
    rows.write_text(
        "".join(
            json.dumps({**asked, field: f"Question {number}?"}) + "\n" for number in range(1200)
        )
    )
    settings["tasks"]["dataset"].update(kind="jsonl", path=str(rows))
    if world == "search":
        settings["tasks"]["environments"][0]["corpus"] = str(tmp_path / "corpus.jsonl")
        (tmp_path / "corpus.jsonl").write_text('{"title": "Numbers", "text": "42 is a number."}\n')
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    checked = command.rollcast("config", "check", file, "--elsewhere")
    assert checked.returncode == 0, checked.stderr
    planned = command.rollcast(
        "plan", "memory", "--config", file, "--gpu", 80, "--trainer-ranks", 4
    )
    assert planned.returncode == 0, planned.stdout + planned.stderr


@pytest.mark.parametrize(
    ("file", "published", "num_ranks"), [("run", QWEN3_8B, 4), ("run-32b", QWEN3_32B, 16)]
)
def test_repositories_in_containers_pass_the_check_and_fit_their_cards(
    file: str, published: dict[str, object], num_ranks: int, tmp_path: Path
) -> None:
    settings = yaml.safe_load((EXAMPLES / "swe" / f"{file}.yaml").read_text())
    model = tmp_path / "model"
    write_model(model, published)
    (model / "config.json").write_text(
        json.dumps(published | {"architectures": ["Qwen3ForCausalLM"]})
    )
    settings["model"]["path"] = str(model)
    rows = tmp_path / "swe.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"prompt": f"Repair {number}.", "task": str(number)}) + "\n"
            for number in range(10)
        )
    )
    settings["tasks"]["dataset"]["path"] = str(rows)
    run_file = tmp_path / "run.yaml"
    run_file.write_text(yaml.safe_dump(settings))
    checked = command.rollcast("config", "check", run_file, "--elsewhere")
    assert checked.returncode == 0, checked.stderr
    planned = command.rollcast(
        "plan", "memory", "--config", run_file, "--gpu", 80, "--trainer-ranks", num_ranks
    )
    assert planned.returncode == 0, planned.stdout + planned.stderr
