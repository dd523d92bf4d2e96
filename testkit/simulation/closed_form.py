"""Seconds of a step by a formula: an independent reference for the simulated ones."""


def closed_form_step(
    update_seconds: float, sampling_seconds: float, window_seconds: float, *, runs_ahead: bool
) -> float:
    """Time from one step to the next if nothing varies.

    `window_seconds`: the shortest step with which groups stay within the staleness bound.
    `runs_ahead`: generators sample while the trainer trains; else both take turns.
    """
    if not runs_ahead:
        return update_seconds + sampling_seconds
    return max(update_seconds, sampling_seconds, window_seconds)
