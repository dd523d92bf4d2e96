"""What the first minute costs: the size of the base installation, and how soon it answers."""
