"""The course of a proof: which part is next, its process and the end of it, and its result."""
