"""Recorded steps: what one optimizer step was made of, in files that any program reads."""
