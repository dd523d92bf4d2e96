"""Credit is computed: the ledger against what Redis says."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.trainer.control.ledger import Ledger
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.state import NEXT_SEQUENCE, restore_ledger
from testkit.rollouts.memory import MemoryBroker, MemoryTrainerQueue


@settings(max_examples=100)
@given(st.lists(st.booleans(), max_size=60))
def test_what_is_outstanding_is_what_was_dispatched_less_what_was_settled(
    settle_some: list[bool],
) -> None:
    ledger, expected = Ledger(), {}
    for number, settle in enumerate(settle_some):
        sequence = ledger.dispatch(f"p{number}", 8)
        assert sequence not in expected
        expected[sequence] = f"p{number}"
        if settle:
            oldest = min(expected)
            assert ledger.settle(oldest) == expected.pop(oldest)
    assert ledger.outstanding == expected
    assert ledger.missing(expected) == []
    assert ledger.missing([]) == sorted(expected)


def test_sequences_never_go_back_after_a_restart() -> None:
    ledger = Ledger()
    for number in range(5):
        ledger.dispatch(f"p{number}", 8)
    checkpoint = Progress(ledger=ledger).as_json()
    for number in range(5, 9):
        ledger.dispatch(f"p{number}", 8)
    queue = MemoryTrainerQueue(MemoryBroker())
    queue.set_state(NEXT_SEQUENCE, str(ledger.next_sequence).encode())
    restored = restore_ledger(
        queue, "state", Progress.from_json(json.loads(json.dumps(checkpoint)))
    )
    assert restored.outstanding == {number: f"p{number}" for number in range(5)}
    assert restored.dispatch("x", 8) == 9


def test_refused_answers_are_remembered_until_the_task_is_settled() -> None:
    ledger = Ledger()
    sequences = [ledger.dispatch(f"p{number}", 8) for number in range(2)]
    assert [ledger.refuse(sequence) for sequence in (*sequences, sequences[0])] == [1, 1, 2]
    restored = Progress.from_json(json.loads(json.dumps(Progress(ledger=ledger).as_json()))).ledger
    assert restored is not None
    restored.settle(sequences[1])
    assert restored.refused == {sequences[0]: 2}
