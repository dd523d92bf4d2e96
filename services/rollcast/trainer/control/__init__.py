"""Decisions of rank 0: dispatch, intake, pacing, evaluation, accounting, reports. No torch here."""
