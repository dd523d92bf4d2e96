"""What becomes an event: each change, and a state once for as long as it lasts."""

from __future__ import annotations

from rollcast.autoscaler.announcer import MAX_WAITING_EVENTS, Announcer, Occasion


def said(announcer: Announcer) -> list[tuple[str, str]]:
    """What waits, taken off."""
    found = [(occasion.value, sentence) for occasion, sentence in announcer.waiting]
    announcer.waiting.clear()
    return found


def test_a_hold_is_told_once_it_has_lasted_and_so_is_its_end() -> None:
    announcer = Announcer()
    for now in (0.0, 50.0, 99.0):
        announcer.announce_hold(now, True, f"away {now}", 100.0)
    assert said(announcer) == []
    for now in (100.0, 5_000.0):
        announcer.announce_hold(now, True, f"away {now}", 100.0)
    assert said(announcer) == [("GeneratorsHeld", "away 100.0")]
    announcer.announce_hold(5_001.0, False, "keeping 3", 100.0)
    announcer.announce_hold(5_002.0, False, "keeping 3", 100.0)
    assert said(announcer) == [("GeneratorsMeasured", "keeping 3")]
    announcer.announce_hold(5_003.0, True, "away again", 100.0)
    announcer.announce_hold(5_004.0, False, "keeping 3", 100.0)
    assert said(announcer) == [], "a short one is nothing to tell"


def test_changes_and_ends_are_told_each_time() -> None:
    announcer = Announcer()
    announcer.announce_change(2, 4, "raising to 4: it waits")
    announcer.announce_change(4, 3, "lowering to 3: slots are free")
    for _ in range(3):
        announcer.announce_end("the run has ended")
    announcer.goes_on()
    announcer.announce_end("the run has ended")
    occasions = [occasion for occasion, _ in said(announcer)]
    assert occasions == ["GeneratorsRaised", "GeneratorsLowered", "RunEnded", "RunEnded"]


def test_what_waits_for_an_api_server_that_is_away_is_bounded_and_the_newest_is_kept() -> None:
    announcer = Announcer()
    for number in range(1_000):
        announcer.announce_change(number, number + 1, str(number))
    assert len(announcer.waiting) == MAX_WAITING_EVENTS
    occasion, sentence = announcer.waiting[-1]
    assert sentence == "999"
    assert not occasion.is_warning
    announcer.announce_missing(0.0, True, "2 of 4", 0.0)
    occasion, _ = announcer.waiting[-1]
    assert occasion is Occasion.MISSING
    assert occasion.is_warning
