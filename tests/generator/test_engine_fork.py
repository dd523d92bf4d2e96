"""The fork that becomes an engine does not hold the port of its generator."""

from __future__ import annotations

import multiprocessing

import pytest

from rollcast.connections.http import listen
from rollcast.generator.vllm import engine_process


def test_the_port_of_a_killed_generator_is_free_while_its_engine_still_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_waiting = multiprocessing.get_context("fork").Event()
    monkeypatch.setattr(engine_process, "import_vllm", lambda: None)
    # The fork's next call after it has closed the socket
    monkeypatch.setattr(engine_process, "_import_engine", is_waiting.set)
    listener = listen("127.0.0.1", 0, setting="generator.http_port")
    port = listener.getsockname()[1]
    with engine_process.EngineFork(listener) as fork:
        assert is_waiting.wait(30)
        # As at the generator's end
        listener.close()
        assert fork.process.is_alive()
        listen("127.0.0.1", port, setting="generator.http_port").close()
    fork.process.join(30)
