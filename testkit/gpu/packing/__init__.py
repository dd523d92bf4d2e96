"""An archive of this repository and of vLLM, small enough for a lent machine without a network."""
