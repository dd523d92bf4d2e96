"""The picture in the module's docstring, version by version."""

from __future__ import annotations

from rollcast.trainer.control.state import SurvivingHistory
from rollcast.wire.version import PolicyVersion


def test_steps_after_the_checkpoint_are_lost() -> None:
    history = SurvivingHistory((), 1).continued_by(2, 4).continued_by(3, 8)
    surviving = [(1, 0), (1, 4), (2, 4), (2, 8), (3, 8), (3, 99)]
    lost = [(1, 5), (1, 6), (2, 3), (2, 9), (3, 7), (4, 0)]
    assert all(history.survives(PolicyVersion(*version)) for version in surviving)
    assert not any(history.survives(PolicyVersion(*version)) for version in lost)
    assert [history.survives(PolicyVersion(1, step)) for step in (4, 5)] == [True, False]
    never = [(2, 0), (2, 3), (3, 0), (3, 7)]
    assert all(history.never_was(PolicyVersion(*version)) for version in never)
    assert not any(
        history.never_was(PolicyVersion(*version))
        for version in [*surviving, (1, 5), (2, 9), (4, 0)]
    )
    assert history.earlier == ((1, 4), (2, 8))


def test_a_second_restart_from_an_older_checkpoint_cuts_deeper() -> None:
    history = SurvivingHistory((), 1).continued_by(2, 6).continued_by(3, 4)
    assert not history.survives(PolicyVersion(2, 5))
    assert history.survives(PolicyVersion(1, 4))
