"""What a process that engines are forked from imports first."""

from __future__ import annotations

from rollcast.telemetry.heavy_imports import uncollected

with uncollected():
    import vllm.v1.engine.async_llm
    import vllm.v1.engine.core
    import vllm.v1.worker.cpu_worker  # noqa: F401
