"""Modules that a process imports before engines are forked from it."""

from __future__ import annotations

import atexit
import os

from rollcast.telemetry.heavy_imports import pause_garbage_collection

with pause_garbage_collection():
    import vllm.v1.engine.async_llm
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401

atexit.register(os._exit, 0)
"""Destroying all imported objects takes seconds, and forks have other ways to end."""
