"""The engine's process as a fork of the generator, so that common imports, a third of an engine's
start, run once.

    generator: import vLLM -> fork -> ............... -> vLLM starts its engine: the order -> serves
    the fork:                 import what the engine alone needs -> wait for the order
                              -> be vLLM's engine core

It is made while the generator has one thread, because a fork of a process with threads may hang,
and no open file but its listener, which the fork closes. vLLM itself would spawn a Python that
imports everything again. The engine core spawns workers of a sharded engine as usual.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from socket import socket
from typing import Any

from rollcast.generator.vllm import engine_warden
from rollcast.generator.vllm.engine_failure import noted_failure
from rollcast.generator.vllm.engine_start import import_vllm


class EngineFork:
    """A process that waits to become an engine core. It ends if this process ends before that."""

    def __init__(self, listener: socket | None = None) -> None:
        """Imports vLLM. Call it in the main thread, before any other thread is started.

        listener: of the generator. The port of a killed one would stay taken until its engine ends.
        """
        import_vllm()
        context = multiprocessing.get_context("fork")
        child_orders, self._orders = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_wait_for_order, args=(child_orders, self._orders, listener), name="EngineCore"
        )
        self.process.start()
        child_orders.close()

    def __enter__(self) -> EngineFork:
        return self

    def __exit__(self, *_: object) -> None:
        # without an order the fork ends; multiprocessing waits for it at this process's end
        self._orders.close()

    def taken_by_vllm(self) -> AbstractContextManager[None]:
        """Within the context, vLLM uses this process when it starts its engine."""
        return engine_processes_by(self._start_by_order)

    def _start_by_order(
        self, *, target: Callable[..., None], name: str, kwargs: Mapping[str, Any]
    ) -> Any:
        process: Any = self.process
        # It runs already, and gets its target when vLLM starts it.
        process.start = partial(self.order, target, kwargs)
        return process

    def order(self, target: Callable[..., None], keywords: Mapping[str, Any]) -> None:
        """Let the fork call `target`, with the current environment of this process."""
        # In two parts: the second cannot be read by a process that lacks a module.
        self._orders.send(dict(os.environ))
        self._orders.send((target, keywords))
        self._orders.close()


@contextmanager
def engine_processes_by(make_process: Callable[..., Any]) -> Iterator[None]:
    """Within the context, vLLM calls this for the process of an engine, instead of spawning one."""
    from vllm.v1.engine import utils

    spawning = utils.get_mp_context
    utils.get_mp_context = lambda: _Context(make_process, spawning())
    try:
        yield
    finally:
        utils.get_mp_context = spawning


class _Context:
    """The multiprocessing context for vLLM, except that it makes processes in another way."""

    def __init__(self, make_process: Callable[..., Any], spawning: Any) -> None:
        self.Process = make_process
        self._spawning = spawning

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spawning, name)


def _wait_for_order(orders: Connection, other_end: Connection, listener: socket | None) -> None:
    """Runs in the fork."""
    if listener is not None:
        listener.close()
    # The plug-in turns garbage collection on again after vLLM's imports.
    gc.disable()
    # Ctrl-C goes to the generator, which ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Otherwise `recv` would not end with the generator.
    other_end.close()
    # A failure is raised again below, once the folder for its reason is known.
    with suppress(Exception):
        _import_engine()
    try:
        environment = orders.recv()
    except EOFError:
        return  # the generator ended without an engine
    _take_over(environment)
    with engine_warden.hold(environment[engine_warden.FOLDER_VARIABLE]), noted_failure():
        _import_engine()
        target, keywords = orders.recv()
        orders.close()
        target(**keywords)


def _import_engine() -> None:
    import vllm.v1.engine.core  # noqa: F401


def _take_over(environment: Mapping[str, str]) -> None:
    # Equal variables are not written again: vLLM finds the memory of the process title by their
    # place.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(
        {name: value for name, value in environment.items() if os.environ.get(name) != value}
    )
