"""Files of other frameworks: one file for each format, and one rule that tells them apart (`recognise.py`)."""
