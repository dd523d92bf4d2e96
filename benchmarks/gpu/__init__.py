"""What the learner's code does on one card."""
