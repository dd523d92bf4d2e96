"""The targets by kind. A module of targets is imported only for one of its kinds: some load torch,
or vLLM.
"""

from __future__ import annotations

from importlib import import_module

from testkit.fuzz.target import Target

AREAS: dict[str, tuple[str, ...]] = {
    "wires": ("wire-task", "wire-group", "grader-call", "keda-call"),
    "weights": ("wire-manifest", "wire-stored-version", "wire-frame"),
    "run_files": ("run-file", "sweep-file"),
    "tasks": (
        *("data-rows", "judge-answer", "reward-answer", "sandbox-value", "sandbox-verdict"),
        "math-answer",
    ),
    "curves": (
        *("curve-csv", "curve-json", "curve-jsonl", "curve-notebook", "curve-html"),
        *("curve-console", "curve-tensorboard", "curve-wandb", "curve-mlflow"),
        "curve-run-folder",
    ),
    "metrics": ("metrics-page", "prometheus-answer", "push"),
    "endpoint": (
        *("endpoint-chat", "endpoint-anthropic", "endpoint-responses", "endpoint-tokens"),
    ),
    "environments": ("environment-frame", "verifiers-trace", "openenv-trace", "openenv-answer"),
    "chats": ("tool-schema", "chat-template", "chat"),
    "models": (
        *("model-config", "model-weights", "model-tokenizer", "tokenizer-settings"),
        *("checkpoint-state", "checkpoint-metadata"),
    ),
}
KINDS = tuple(kind for kinds in AREAS.values() for kind in kinds)


def find_target(kind: str) -> Target:
    area = next(area for area, kinds in AREAS.items() if kind in kinds)
    targets: tuple[Target, ...] = import_module(f"testkit.fuzz.targets.{area}").TARGETS
    return next(target for target in targets if target.kind == kind)
