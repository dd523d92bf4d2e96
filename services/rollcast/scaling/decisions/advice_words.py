"""Words of an advice: chances, numbers of evaluations, cautions, and the signs of a change."""

from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.look_ahead import WaitPlan


def chance_in_words(probability: float) -> str:
    """A probability in per cent. Draws cannot separate more than 99 % from certainty."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def evaluations_in_words(number: int) -> str:
    return "1 more evaluation" if number == 1 else f"{number} more evaluations"


def signs_in_words(wait: WaitPlan) -> str:
    """Sentence on the next readings that would change the advice."""
    if wait.continue_from is None:
        if wait.stop_below is None:
            return "Hardly any one reading would; the slope of the curve will."
        return f"A level below {wait.stop_below:.3f} would speak for stopping."
    stops = "" if wait.stop_below is None else f", below {wait.stop_below:.3f} for stopping"
    return f"A level of {wait.continue_from:.3f} or more would speak for continuing{stops}."


def caution_in_words(forecast: Forecast) -> str:
    """Sentence on why the forecast says less than usual, with a space before it, or nothing."""
    if not forecast.verdict.has_trend:
        learned = "what curves of other groups did" if forecast.options.prior.stack else "the prior"
        return f" The readings show no trend, so this rests on {learned} and on their noise."
    if not forecast.verdict.kind.is_described:
        return " No law describes the curve: find out what happened first."
    if not forecast.verdict.kind.is_decidable:
        return " The end is not known well: ask again."
    return ""


def above_the_ceiling_in_words(forecast: Forecast, median_end: float) -> str:
    """Why the gain exceeds the headroom, if it does: A is the ceiling of the trajectories that have
    one.
    """
    asymptote = float(forecast.asymptote((0.5,))[0])
    if not forecast.verdict.is_described or median_end <= asymptote:
        return ""
    return (
        f" The end lies above A, {asymptote:.3f}, because gains end with a probability of "
        f"{chance_in_words(forecast.ceiling_probability)} only: A is the ceiling if they do."
    )
