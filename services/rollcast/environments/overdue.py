"""What interrupts a call in an environment's process at its deadline."""


class OverdueError(BaseException):
    """A call exceeded its deadline. Not an Exception: tools catch those."""
