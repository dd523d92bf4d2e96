"""How the trainer ended: every rank's process returns the same exit code."""

from enum import IntEnum

from rollcast.config.errors import EXIT_FAILED

EXIT_INTERRUPTED = 143
"""SIGTERM was obeyed and a checkpoint written: whoever supervises may start again with --resume."""


class TrainerEnding(IntEnum):
    """Why the loop ended, as an exit code: 0 only for a finished run, whose pod a Job never
    restarts.
    """

    FINISHED = 0
    INTERRUPTED = EXIT_INTERRUPTED
    FAILED = EXIT_FAILED
