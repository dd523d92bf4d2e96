"""A machine that starts containers."""

from __future__ import annotations

import pytest

from testkit.containers import why_no_containers


@pytest.fixture(scope="session")
def podman_machine() -> None:
    """Skips a test where podman starts none, with the reason; makes the tests' image."""
    if reason := why_no_containers():
        pytest.skip(reason)
