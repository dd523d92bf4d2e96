"""Calls that exceed their deadline in an environment's process: they are interrupted, or answer by
themselves.
"""


class OverdueError(BaseException):
    """A call exceeded its deadline. Not an Exception: tools catch those."""


class OverdueAnswer(str):
    """The answer of a tool that ended its work at a deadline of its own, with the part that was
    done.
    """

    __slots__ = ()
