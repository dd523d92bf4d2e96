"""Whole runs under a seeded schedule of faults, and an accountant that reads their files."""
