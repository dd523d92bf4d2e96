"""How long publishing and recovery take."""
