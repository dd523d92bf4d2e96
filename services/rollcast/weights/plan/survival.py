"""Which versions the weights of a trainer descend from, after restarts that went back to a checkpoint."""

from collections.abc import Iterable
from typing import NamedTuple

from rollcast.wire.version import PolicyVersion


class Surviving(NamedTuple):
    """Steps of `incarnation` up to and including `last_step` belong to the surviving history."""

    incarnation: int
    last_step: int


def survives(version: PolicyVersion, incarnation: int, history: Iterable[Surviving]) -> bool:
    """Whether the weights of trainer `incarnation` descend from `version`; `history` names older incarnations only."""
    return version.incarnation == incarnation or any(
        version.incarnation == entry.incarnation and version.step <= entry.last_step for entry in history
    )
