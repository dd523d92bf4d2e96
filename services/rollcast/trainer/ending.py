"""How the trainer ended: every rank's process returns the same exit code."""

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
        """0 only for a finished run: a Job never restarts a pod that ended with it."""
        return {
            TrainerEnding.FINISHED: 0,
            TrainerEnding.INTERRUPTED: EXIT_INTERRUPTED,
            TrainerEnding.FAILED: EXIT_FAILED,
        }[self]
