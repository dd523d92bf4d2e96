"""How plainly this repository is written, in numbers: `python -m lab.plainness`."""
