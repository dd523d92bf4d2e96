"""Which column of a log is which: `curve_sheet.py` decides it once, from names, values and what the
user chose.
"""
