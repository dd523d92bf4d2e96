"""Ports that stay free until their service starts."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.connections.http import listen
from rollcast.local.ports import MAX_NUM_ATTEMPTS, PORTS, free_port, keep_port, ports_below


@pytest.mark.parametrize(
    ("kernels_choice", "ports"),
    [
        ("32768\t60999\n", range(20_000, 30_000)),
        ("29999\t60999\n", range(19_999, 29_999)),
        ("15000\t65535\n", range(5_000, 15_000)),
        ("10000\t65535\n", range(1_025, 10_000)),
        ("2025\t65535\n", range(1_025, 2_025)),
        ("2024\t65535\n", range(0)),
        ("1\t65535\n", range(0)),
        (None, range(20_000, 30_000)),
    ],
)
def test_candidates_lie_below_what_the_kernel_hands_out(
    tmp_path: Path, kernels_choice: str | None, ports: range
) -> None:
    if kernels_choice is not None:
        (tmp_path / "range").write_text(kernels_choice)
    assert ports_below(tmp_path / "range") == ports


def test_free_ports_are_candidates_and_none_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = range(20_000, 30_000)
    monkeypatch.setattr(
        "rollcast.local.ports._candidates", itertools.cycle(random.sample(candidates, 1_000))
    )
    with ExitStack() as listeners:
        ports = [free_port("127.0.0.1") for _ in range(20)]
        assert all(port in candidates for port in ports)
        assert len(set(ports)) == len(ports)
        for port in ports:
            listeners.enter_context(listen("127.0.0.1", port, setting="port"))


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port("127.0.0.1")
    spare = free_port("127.0.0.1")
    monkeypatch.setattr("rollcast.local.ports._candidates", iter([taken, spare]))
    with listen("127.0.0.1", taken, setting="port"):
        assert free_port("127.0.0.1") == spare


def test_where_every_candidate_is_taken_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = free_port("127.0.0.1")
    monkeypatch.setattr("rollcast.local.ports._candidates", iter([taken] * MAX_NUM_ATTEMPTS))
    with listen("127.0.0.1", taken, setting="port"):
        assert free_port("127.0.0.1") not in PORTS


def test_where_there_is_no_candidate_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcast.local.ports._candidates", itertools.cycle(range(0)))
    listen("127.0.0.1", free_port("127.0.0.1"), setting="port").close()


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UserError, match="bind an address of this machine"):
        free_port("192.0.2.1")


def test_a_port_is_kept_from_other_runs_before_anything_listens_until_its_process_ends() -> None:
    port = free_port("127.0.0.1")
    program = (
        f"from rollcast.local.ports import keep_port; print(keep_port('127.0.0.1', {port}), "
        "flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        listen("127.0.0.1", port, setting="port").close()
        assert not keep_port("127.0.0.1", port)
        other.communicate("\n", timeout=60)
    assert keep_port("127.0.0.1", port)
    assert keep_port("127.0.0.1", port), "its own"
