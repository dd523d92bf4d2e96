"""Collection is for names alone: no test module starts a program or imports vLLM when it is imported."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


def test_no_module_started_a_program_or_imported_vllm(request: pytest.FixtureRequest) -> None:
    """Asks about the modules that this process has collected: in `make test` all of the core."""
    plugin = request.config.pluginmanager.get_plugin("started-programs")
    assert plugin is not None
    assert plugin.guilty == []


def test_a_module_that_starts_a_program_is_named(pytestconfig: pytest.Config) -> None:
    registered: Any = pytestconfig.pluginmanager.get_plugin("started-programs")
    plugin = type(registered)()
    collecting = plugin.pytest_make_collect_report(_Module())
    next(collecting)
    subprocess.run(["true"], check=True, timeout=60)
    with pytest.raises(StopIteration):
        next(collecting)
    assert plugin.guilty == ["tests/test_some.py starts (['true'],)"]


class _Module:
    """What the plugin asks a collector for."""

    nodeid = "tests/test_some.py"
