"""How the trainer ended: every rank's process says the same with its exit code."""

from __future__ import annotations

from enum import StrEnum

from rollcast.config.errors import EXIT_FAILED

EXIT_INTERRUPTED = 143
"""SIGTERM was obeyed and a checkpoint written: whoever supervises may start again with --resume."""


class TrainerEnding(StrEnum):
    """Why the loop ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"

    @property
    def exit_code(self) -> int:
        """0 for nothing but a finished run: a Job never makes a pod again that ended with it."""
        return {
            TrainerEnding.FINISHED: 0,
            TrainerEnding.INTERRUPTED: EXIT_INTERRUPTED,
            TrainerEnding.FAILED: EXIT_FAILED,
        }[self]
