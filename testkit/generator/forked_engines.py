"""Engines of tests as forks of one process that has imported vLLM: for each a third of its start
less.

A generator forks its engine of itself (rollcast.generator.vllm.engine_process). A test's process
has threads by then, so multiprocessing's fork server does it, which has no threads.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.forkserver import ensure_running
from typing import Any

from rollcast.generator.vllm import engine_warden
from rollcast.generator.vllm.engine_process import engine_processes_by
from testkit.uncompiled import UNCOMPILED, compile_as_told

FORKSERVER = multiprocessing.get_context("forkserver")
PRELOADED = (
    "testkit.generator.preloaded",
    "testkit.weights.generator_process",
    "tests.weights.trainer_process",
)
"""There is one server for all of a test process. One that others started without vLLM serves as
well, slowly."""


@contextmanager
def forked_engines() -> Iterator[None]:
    """Within it vLLM's engine is forked. To be entered when vLLM's environment is set."""
    FORKSERVER.set_forkserver_preload(list(PRELOADED))
    uncompiled = os.environ.pop(
        UNCOMPILED, None
    )  # of this engine; its parent serves others as well
    ensure_running()
    if uncompiled is not None:
        os.environ[UNCOMPILED] = uncompiled
    with engine_processes_by(_forked_process):
        yield


def _forked_process(*, target: Callable[..., None], name: str, kwargs: Mapping[str, Any]) -> Any:
    return FORKSERVER.Process(
        target=_be_engine, name=name, args=(dict(os.environ), target, dict(kwargs))
    )


def _be_engine(
    environment: dict[str, str], target: Callable[..., None], keywords: dict[str, Any]
) -> None:
    os.environ.update(environment)
    compile_as_told(environment)
    with engine_warden.hold(environment[engine_warden.FOLDER_VARIABLE]):
        target(**keywords)
