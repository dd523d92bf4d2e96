"""How differences of pass rates are printed."""


def difference(value: float) -> str:
    """Three decimals; below 0.001 one significant digit, so that no difference reads 0.000."""
    if abs(value) >= 0.001:
        return f"{value:.3f}"
    # 1e-6: pass rate: smaller differences are only rounding and are printed as 0.
    if abs(value) < 1e-6:
        return "0"
    one_digit = float(f"{value:.1g}")
    return f"{one_digit:f}".rstrip("0")


def compute_in_words(compute: float, unit: str) -> str:
    """A place on the axis of compute, for a sentence: step 850, or 3.21 device-hours."""
    return f"step {compute:.0f}" if unit == "steps" else f"{compute:.4g} {unit}"
