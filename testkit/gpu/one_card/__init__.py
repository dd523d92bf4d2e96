"""What the processes of a run need that share one card in the proof, and that no user needs."""
