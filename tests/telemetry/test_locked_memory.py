"""Memory that an RDMA device can use: by the process's limit and capabilities."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from rollcast.telemetry.locked_memory import why_not_registered

WITHOUT_CAPABILITIES = "Name:\tpython\nCapEff:\t0000000000000000\nSeccomp:\t2\n"
WITH_IPC_LOCK = "Name:\tpython\nCapEff:\t0000000000004000\nSeccomp:\t2\n"
WITH_THE_NEXT_ONE = "Name:\tpython\nCapEff:\t0000000000008000\nSeccomp:\t2\n"
CONTAINERDS_LIMIT = 8 << 20


@pytest.mark.parametrize(
    ("status", "limit", "is_told"),
    [
        (WITHOUT_CAPABILITIES, CONTAINERDS_LIMIT, True),
        (WITH_THE_NEXT_ONE, CONTAINERDS_LIMIT, True),
        (WITH_IPC_LOCK, CONTAINERDS_LIMIT, False),
        (WITHOUT_CAPABILITIES, resource.RLIM_INFINITY, False),
    ],
)
def test_a_process_that_cannot_register_memory_says_so(
    status: str, limit: int, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "infiniband").mkdir()
    (tmp_path / "status").write_text(status)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, limit))
    said = why_not_registered(tmp_path / "infiniband", tmp_path / "status")
    assert (said is not None) is is_told
    if said is not None:
        assert "RLIMIT_MEMLOCK is 8192 KiB and this process lacks CAP_IPC_LOCK" in said
        assert "LimitMEMLOCK" in said


def test_without_an_rdma_device_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (0, 0))
    assert why_not_registered(tmp_path / "infiniband") is None
