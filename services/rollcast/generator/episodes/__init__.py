"""Episodes: rollouts of several turns, from their environment's reset to their reward."""
