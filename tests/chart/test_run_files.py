"""The run file of every value set is one that the run file's own schema accepts."""

from __future__ import annotations

import pytest

from rollcast.config.run import parse_run_config
from tests.chart.rendering import render, run_file
from tests.chart.value_sets import VALUE_SETS


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_run_file_is_one(name: str) -> None:
    data = run_file(render(VALUE_SETS[name]))
    config = parse_run_config(data, source=name)
    assert config.folder.as_posix() == "/var/lib/rollcast/runs"
    assert data["run"] == VALUE_SETS[name].get("config", {}).get("run", "rollcast")


def test_small_and_large_numbers_survive() -> None:
    """5e-07 has no dot, which YAML 1.1 takes for text; large whole numbers must not come out as
    6.7e+07.
    """
    config = parse_run_config(run_file(render(VALUE_SETS["small-numbers"])), source="values")
    assert config.recipe.optimizer.learning_rate == 5e-7
    assert config.weights.bucket_bytes == 4_194_304
    assert config.redis.max_bytes == 134_217_728
