"""Pictures of curves and forecasts, as PNG or SVG. matplotlib is imported when a figure is made."""
