"""Whether tools that take long keep the engine's slots full."""
