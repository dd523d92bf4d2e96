"""The cost of the forecaster's service, and the load that it withstands."""
