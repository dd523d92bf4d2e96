"""The curve in every generated file."""

from __future__ import annotations

STEPS = tuple(range(0, 110, 10))
HELD_OUT = tuple(round(0.2 + 0.5 * step / (step + 30.0), 4) for step in STEPS)
TRAINING = tuple(round(0.3 + 0.4 * step / (step + 20.0), 4) for step in STEPS)
"""Higher than the held-out one, so that a reader which takes the wrong one is noticed."""
BEGAN = 1_700_000_000.0
"""Unix seconds."""
SECONDS_PER_STEP = 36.0
