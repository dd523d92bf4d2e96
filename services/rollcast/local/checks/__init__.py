"""What is looked at before a run is started: one file for each check, one list (`checklist`)."""
