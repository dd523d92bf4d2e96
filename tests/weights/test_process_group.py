"""Where the rendezvous store listens, and who meets whom in it."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import torch

from rollcast.config.errors import UserError
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.process_group import GroupAddress, RendezvousStore, WeightGroup


def listening_addresses() -> set[tuple[str, int]]:
    """Addresses and ports of this process, in which earlier tests may have left some."""
    connections = psutil.Process().net_connections("tcp")
    return {(c.laddr.ip, c.laddr.port) for c in connections if c.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("bind", "listens"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.3", "127.0.0.3"), ("0.0.0.0", "0.0.0.0")],
)
def test_the_store_listens_where_it_was_told_and_nowhere_else(bind: str, listens: str) -> None:
    before = listening_addresses()
    store = RendezvousStore(bind)
    assert listening_addresses() - before == {(listens, store.port)}
    socket.create_connection((store.host, store.port), 5.0).close()


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(UserError, match=re.escape("rpc.bind")):
        RendezvousStore("192.0.2.1")


def enter(store: RendezvousStore, rank: int, prefix: str) -> int:
    address = GroupAddress(
        1, 0, 1, "gloo", store.host, store.port, prefix, rank, 2, 2.0, opening_seconds=2.0
    )
    sent = torch.full((5,), rank + 7, dtype=torch.uint8)
    WeightGroup(address, torch.device("cpu")).broadcast(sent)
    return int(sent[0])


@pytest.mark.parametrize("stray", [False, True])
def test_only_those_who_were_told_the_prefix_meet(stray: bool) -> None:
    store = RendezvousStore("127.0.0.1")
    assert store.prefix != RendezvousStore("127.0.0.1").prefix
    with ThreadPoolExecutor(2) as threads:
        ours = threads.submit(enter, store, 0, store.prefix)
        theirs = threads.submit(enter, store, 1, "epoch" if stray else store.prefix)
    if stray:
        for rank in (ours, theirs):
            with pytest.raises(GroupError, match="rendezvous failed"):
                rank.result()
    else:
        assert (ours.result(), theirs.result()) == (7, 7)


def test_the_store_keeps_nothing_of_a_group_that_is_over() -> None:
    store = RendezvousStore("127.0.0.1")
    members = [
        GroupWorker(
            GroupAddress(
                1,
                0,
                1,
                "gloo",
                store.host,
                store.port,
                store.prefix,
                rank,
                2,
                5.0,
                opening_seconds=5.0,
            ),
            torch.device("cpu"),
        )
        for rank in range(2)
    ]
    for member in members:
        member.opened.result(10.0)
    for member in members:
        member.abandon()
        member.join(10.0)
    assert store._store.num_keys() == 0
