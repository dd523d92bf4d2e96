"""Any source as a curve: with a unit, a start-up and a surviving history;
and the forecast of it.
"""
