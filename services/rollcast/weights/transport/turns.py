"""Many lanes at one receiver: only the next few pieces travel, in the same order at every receiver.

    piece        lane 0   lane 1   ..  lane W-1
      first         0        1            W-1        the number is the turn
      second        W       W+1          2W-1

A turn may begin once it is one of the MAX_LANES_MOVING turns from the lowest unfinished one on. So
the lowest unfinished turn may begin at every receiver, and no circle of waits can form. Many NCCL
kernels at the same time could form one: each would wait for its peers on GPUs that have begun with
other lanes. A sender only sees its piece take longer: all pieces of a round together are as many
bytes as a single lane has on its way.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rollcast.weights.transport.errors import GroupError

MAX_LANES_MOVING = 8
"""A machine has about this many network cards; far below the 32 operations that CUDA queues."""


class LaneTurns:
    """The turns of one version at one receiver; thread-safe."""

    def __init__(self, counts: Sequence[int], at_once: int | None = None) -> None:
        """`counts`: pieces of each lane.

        `at_once` lanes or fewer never wait; None = MAX_LANES_MOVING.
        """
        at_once = at_once or MAX_LANES_MOVING
        # All lanes' first pieces, then all their second pieces: an order that every receiver
        # derives alone.
        rounds = sorted(
            (index, lane) for lane, count in enumerate(counts) for index in range(count)
        )
        self._order = {piece: turn for turn, piece in enumerate(rounds)}
        self._next = [0] * len(counts)
        self._running_turns: list[deque[int]] = [deque() for _ in counts]
        self._over = [False] * len(rounds)
        self._lowest_unfinished = 0  # the lowest unfinished turn
        self._at_once = at_once if len(counts) > at_once else len(rounds)
        self._is_broken = False
        self._changed = threading.Condition()

    def may_begin(self, lane: int) -> bool:
        """Whether the turn of the lane's next piece has come."""
        with self._changed:
            return self._has_come(self._order[self._next[lane], lane])

    def begin(self, lane: int, patience_seconds: float) -> None:
        """Wait for the turn of the lane's next piece.

        Raises GroupError if a lane before it broke or does not move.
        """
        with self._changed:
            turn = self._order[self._next[lane], lane]
            self._next[lane] += 1
            self._changed.wait_for(
                lambda: self._is_broken or self._has_come(turn), patience_seconds
            )
            if not self._has_come(turn):
                self._break()
                raise GroupError(f"lane {lane} waited for lanes that do not move")
            self._running_turns[lane].append(turn)

    def end(self, lane: int) -> None:
        """The oldest piece that the lane has begun is over."""
        with self._changed:
            self._over[self._running_turns[lane].popleft()] = True
            # Turns may end out of order; only the lowest unfinished one lets a later one begin.
            while self._lowest_unfinished < len(self._over) and self._over[self._lowest_unfinished]:
                self._lowest_unfinished += 1
            self._changed.notify_all()

    def give_up(self) -> None:
        """A lane broke: those that wait for it need not wait any longer."""
        with self._changed:
            self._break()

    @contextmanager
    def turn(self, lane: int, patience_seconds: float) -> Iterator[None]:
        """One piece from beginning to end."""
        self.begin(lane, patience_seconds)
        try:
            yield
        except BaseException:
            self.give_up()
            raise
        self.end(lane)

    def _has_come(self, turn: int) -> bool:
        return turn < self._lowest_unfinished + self._at_once

    def _break(self) -> None:
        self._is_broken = True
        self._changed.notify_all()
