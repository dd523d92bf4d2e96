"""What the points of a curve say about the law."""
