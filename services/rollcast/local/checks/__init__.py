"""Checks before a run is started: one file each, and one list of them (`checklist`)."""
