"""What the forecaster's service costs and what it withstands."""
