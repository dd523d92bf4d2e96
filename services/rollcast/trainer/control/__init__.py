"""What rank 0 decides: dispatch, intake, pacing, evaluation, accounting, reports. No torch here."""
