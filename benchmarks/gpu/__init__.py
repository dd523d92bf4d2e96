"""The proof on one card: survival, exactness and speed, within a given number of minutes."""
