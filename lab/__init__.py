"""Experiments made once, with their findings: `python -m lab.NAME` from the repository's root, and
notes.md.
"""
