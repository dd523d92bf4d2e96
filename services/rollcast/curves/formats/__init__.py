"""Files of other frameworks: one module for each format, and one rule that recognises them
(`recognise.py`).
"""
