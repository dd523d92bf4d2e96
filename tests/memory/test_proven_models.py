"""The table of proven models: `rollcast config check` reads it, the documents show it, the engine's
test runs it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rollcast.cli.main import app
from rollcast.memory.proven_models import is_proven, proven_models

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_the_documents_show_the_table() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    start = rows.index(
        "| architecture | peculiar to it | largest gap | own choices within 1e-4 | measured |"
    )
    assert rows[start + 1 : start + 1 + len(proven_models())] == [
        model.row for model in proven_models()
    ]


def test_no_architecture_has_two_rows() -> None:
    names = [name for model in proven_models() for name in model.architectures]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("config", "answer"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "Mixtral is proven: "),
        ({"architectures": ["PhiForCausalLM"]}, "PhiForCausalLM is not proven: "),
        ({"architectures": [3]}, ""),
        ({}, ""),
    ],
)
def test_the_architecture_of_a_config_json_is_looked_up(
    config: dict[str, object], answer: str
) -> None:
    found = is_proven(json.loads(json.dumps(config)))
    assert found.startswith(answer)
    assert bool(found) is bool(answer)


def test_config_check_reads_the_table(tmp_path: Path) -> None:
    model = tmp_path / "config.json"
    model.write_text(json.dumps({"architectures": ["Glm4MoeForCausalLM"]}))
    words = ["config", "check", str(PAGE.parents[1] / "configs" / "demo.yaml"), "--elsewhere"]
    checked = CliRunner().invoke(app, [*words, "--model-config", str(model)])
    assert checked.exit_code == 0, checked.output
    assert "model: GLM-4 MoE is proven: " in checked.output
