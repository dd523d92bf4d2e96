"""The device on which the tests of wire 2 keep weights: the CPU, unless the environment names
another.

ROLLCAST_TEST_DEVICE=cuda:0 python -m pytest tests/weights/test_faults.py
"""

from __future__ import annotations

import os

VARIABLE = "ROLLCAST_TEST_DEVICE"
DEVICE = os.environ.get(VARIABLE, "cpu")
