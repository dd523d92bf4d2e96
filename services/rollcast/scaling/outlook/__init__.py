"""What a later evaluation will read: the law's forecast, averaged with simple methods by learned numbers."""
