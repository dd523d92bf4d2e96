"""`rollcast sweep`: many recipes, one budget."""
