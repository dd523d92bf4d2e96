"""Versions of the wires, and of the policy whose weights sampled a token."""

from collections.abc import Iterable
from typing import NamedTuple

from rollcast.wire import rollout_pb2

WIRE_VERSION = 5
"""Version of both wires: the messages in `proto/`, the Redis keys and the scripts. Raised with
every change that an older process would misread."""


def wire_mismatch(*, generator: int, trainer: int) -> str | None:
    """Why the two cannot work together, with the remedy; None if they can."""
    if generator == trainer:
        return None
    return (
        f"the generator speaks wire version {generator} and the trainer {trainer}; stop the run "
        "with its generators drained, then start both from images (or installations) of one release"
    )


class PolicyVersion(NamedTuple):
    """(incarnation, step), ordered; written "2.118".

    `step` counts optimizer steps in the surviving history; `incarnation` rises at every trainer
    start, so that two different weights never share a version.
    """

    incarnation: int
    step: int

    def __str__(self) -> str:
        return f"{self.incarnation}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> "PolicyVersion":
        """Inverse of str(). Raises ValueError."""
        incarnation, _, step = text.partition(".")
        return cls(int(incarnation), int(step))

    @classmethod
    def from_proto(cls, message: rollout_pb2.PolicyVersion) -> "PolicyVersion":
        return cls(message.incarnation, message.step)

    def to_proto(self) -> rollout_pb2.PolicyVersion:
        return rollout_pb2.PolicyVersion(incarnation=self.incarnation, step=self.step)


class Surviving(NamedTuple):
    """Steps of `incarnation` up to and including `last_step` belong to the surviving history."""

    incarnation: int
    last_step: int


def survives(version: PolicyVersion, incarnation: int, history: Iterable[Surviving]) -> bool:
    """Whether the weights of trainer `incarnation` descend from `version`; `history` names older
    incarnations only.
    """
    return version.incarnation == incarnation or any(
        version.incarnation == entry.incarnation and version.step <= entry.last_step
        for entry in history
    )
