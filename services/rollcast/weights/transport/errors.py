"""Errors of weight groups."""


class GroupError(RuntimeError):
    """The group is broken: a member died, froze, or does not belong to it."""


class NoRoomError(GroupError):
    """There is not enough memory to stage a version, or to send or receive it."""
