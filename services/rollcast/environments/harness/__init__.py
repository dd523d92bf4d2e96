"""Programs of the user that run an agent themselves: how they are started, watched and ended."""
