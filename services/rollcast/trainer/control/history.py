"""The surviving history: which versions' weights the run still descends from.

incarnation 1: steps 0 1 2 3 4 5 6 x killed          checkpoint at 4
incarnation 2:               4 5 6 7 8 x killed      checkpoint at 8
incarnation 3:                       8 9 ...
surviving: 1.0 .. 1.4, 2.4 .. 2.8, 3.8 ..            lost: 1.5, 1.6
"""

from dataclasses import dataclass

from rollcast.wire.version import PolicyVersion


@dataclass(frozen=True, slots=True)
class SurvivingHistory:
    """Earlier incarnations, each with the last step that survives, and the current one."""

    earlier: tuple[tuple[int, int], ...]
    """(incarnation, last surviving step), oldest first."""
    incarnation: int

    def survives(self, version: PolicyVersion) -> bool:
        """Whether the current weights descend from `version`."""
        first = self._first_step(version.incarnation)
        last = dict(self.earlier).get(version.incarnation, version.step)
        return first is not None and first <= version.step <= last

    def never_was(self, version: PolicyVersion) -> bool:
        """Whether no such version can have been published: its incarnation began at a later step, or does not exist."""
        first = self._first_step(version.incarnation)
        return version.incarnation < 1 or (first is not None and version.step < first)

    def _first_step(self, incarnation: int) -> int | None:
        """First step of an incarnation: the last surviving step of the one before. None = nothing of it survives."""
        began = [0, *(last for _, last in self.earlier)]
        numbers = [*(number for number, _ in self.earlier), self.incarnation]
        return dict(zip(numbers, began, strict=True)).get(incarnation)

    def continued_by(self, incarnation: int, step: int) -> "SurvivingHistory":
        """The history of a new incarnation that starts from a checkpoint of this one at `step`."""
        assert incarnation > self.incarnation, (incarnation, self.incarnation)
        return SurvivingHistory((*self.earlier, (self.incarnation, step)), incarnation)
