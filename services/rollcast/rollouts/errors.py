"""Errors of wire 1."""


class CodecError(ValueError):
    """A message whose content contradicts its form: damaged, hostile, or of an incompatible
    program.
    """


class QueueAway(ConnectionError):  # noqa: N818
    """Redis did not take a command within the patience that was configured; the command may be
    tried again.
    """


class OwnerFenced(RuntimeError):  # noqa: N818
    """This generator was removed from the run: its tasks went to others.

    It has to come back under a new name.
    """
