"""`rollcast sweep ...`: several arms, one budget."""
