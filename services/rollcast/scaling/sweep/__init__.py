"""Which of several arms deserves the next slice of a shared budget."""
