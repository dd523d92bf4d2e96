"""Wire 3: the folder of a run.

Its file names, its records, appending, tailing, and what survives a restart.
"""
