"""The one error a user can cause: shown as a sentence, never as a traceback."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in what the user gave us. The message names the field, its value and the remedy; exit code 2."""


EXIT_USER_ERROR = 2
