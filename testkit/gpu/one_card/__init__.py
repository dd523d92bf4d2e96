"""Additions for the processes of a run that share one card in the proof; no user needs them."""
