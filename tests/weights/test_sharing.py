"""An update and a broadcast on the same GPUs never run side by side, however long a broadcast
takes.
"""

from __future__ import annotations

import threading
import time

from rollcast.weights.sender.sharing import Sharing

PATIENCE_SECONDS = 40.0


def test_an_update_waits_beyond_its_timeout_for_a_broadcast_that_is_running() -> None:
    sharing = Sharing(threading.Condition())
    events: list[str] = []
    has_begun = threading.Event()
    may_end = threading.Event()

    def broadcast() -> None:
        with sharing.broadcasting() as may_begin:
            assert may_begin
            has_begun.set()
            assert may_end.wait(PATIENCE_SECONDS)
            events.append("the broadcast ended")

    def update() -> None:
        with sharing.pause(lambda: False, timeout_seconds=0.01):
            events.append("the update began")

    control = threading.Thread(target=broadcast)
    control.start()
    assert has_begun.wait(PATIENCE_SECONDS)
    main = threading.Thread(target=update)
    main.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while main.is_alive() and not sharing.is_held and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not events, "the update began next to the broadcast"
    with sharing.broadcasting() as may_begin:
        assert not may_begin, "a broadcast began although an update waits"
    assert main.is_alive()
    may_end.set()
    main.join(PATIENCE_SECONDS)
    control.join(PATIENCE_SECONDS)
    assert events == ["the broadcast ended", "the update began"]


def test_an_update_does_not_wait_for_broadcasts_that_are_due_and_never_begin() -> None:
    sharing = Sharing(threading.Condition())
    with sharing.pause(lambda: True, timeout_seconds=0.01), sharing.broadcasting() as may_begin:
        assert not may_begin
    with sharing.broadcasting() as may_begin:
        assert may_begin
