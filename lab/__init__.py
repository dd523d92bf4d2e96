"""One-off measurements and scripts that count: not part of the product, not run by users."""
