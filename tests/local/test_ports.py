"""Ports that stay free until their service starts."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.connections.http import listen
from rollcast.local.ports import ATTEMPTS, PORTS, free_port


def test_a_free_port_lies_outside_those_that_the_kernel_hands_out() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(PORTS) < lowest
    with ExitStack() as listeners:
        ports = [free_port("127.0.0.1") for _ in range(20)]
        assert all(port in PORTS for port in ports)
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
    monkeypatch.setattr("rollcast.local.ports._candidates", iter([taken] * ATTEMPTS))
    with listen("127.0.0.1", taken, setting="port"):
        assert free_port("127.0.0.1") not in PORTS


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UserError, match="bind an address of this machine"):
        free_port("192.0.2.1")
