"""The flight recorder: keeps what a step was made of, so that `rollcast replay` computes it
again."""
