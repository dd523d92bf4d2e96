"""Whether a run loses, repeats or ages anything while all of its processes and networks fail."""
