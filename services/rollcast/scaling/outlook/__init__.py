"""Forecast of a later evaluation: the law's, averaged with simple methods by learned numbers."""
