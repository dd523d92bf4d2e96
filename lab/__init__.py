"""Experiments made once, with what they found: `python -m lab.NAME` from the repository's root, and notes.md."""
