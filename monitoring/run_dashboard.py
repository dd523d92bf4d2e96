"""Run: its end, how that forecast aged, and whether the run is healthy."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring import variables
from monitoring.panels import (
    FORECASTER,
    HOURS,
    READINGS,
    SHARE,
    Panel,
    Query,
    assemble,
    band,
    curve,
    gauges,
    lines,
    number,
    rows,
    states,
)
from monitoring.promql import (
    OWN_CURVE,
    band_by_compute,
    last,
    last_chance,
    last_of_forecast,
    last_of_law,
    newest_evaluation,
    readings_by,
    series,
    stacked,
)
from monitoring.variables import OF_THE_FORECASTER, RUN
from rollcast.telemetry import evaluation_metrics, forecaster_metrics, trainer_metrics
from rollcast.telemetry.metric import Metric

RANGE = "$__range"
_REST = 'stretch="rest"'
_THREE = 'quantile=~"0.05|0.5|0.95"'


def _quantiles(metric: Metric) -> list[Query]:
    """5 %, the median and 95 %, as far as the run has got."""
    return [Query(f"sort({last(metric, RUN, _THREE, by='quantile')})", "{{quantile}}", once=True)]


def _quantiles_of_law(metric: Metric) -> list[Query]:
    """The same, and nothing if no law describes the curve now."""
    return [
        Query(
            f"sort({last_of_law(metric, RUN, _THREE, by='run, quantile')})",
            "{{quantile}}",
            once=True,
        )
    ]


def _sorted_quantiles(metric: Metric, matcher: str) -> str:
    """Of a metric that is absent while readings to come are not forecast."""
    return f"sort({last_of_forecast(metric, RUN, matcher, by='run, quantile')})"


def _over_time(metric: Metric, by: str = "quantile") -> Query:
    return Query(f"max by ({by}) ({series(metric, RUN)})", f"{{{{{by}}}}}")


def _gauge(metric: Metric, legend: str, *matchers: str) -> Query:
    return Query(f"max by (run) ({series(metric, RUN, *matchers)})", legend)


def _in_a_word(title: str, description: str, metric: Metric, *, by: str) -> Panel:
    """The value of the label `by` whose series is 1."""
    query = Query(f"{last(metric, RUN, by=by)} == 1", f"{{{{{by}}}}}", once=True)
    return number(title, description, [query], width=5, name_only=True)


def _newest_reading() -> Query:
    return Query(newest_evaluation(evaluation_metrics.EVAL_PASS_RATE, RUN, OWN_CURVE), READINGS)


def _cost_to_target() -> str:
    band_by = last(forecaster_metrics.FORECAST_PASS_RATE, RUN, _THREE, by="quantile, compute")
    return f"{band_by} >= $target"


def run_dashboard() -> Dashboard:
    curve_expression = stacked(
        [
            (band_by_compute(RUN, RANGE), "$1", "quantile"),
            (readings_by(evaluation_metrics.EVAL_COMPUTE, RUN, RANGE), READINGS, ""),
        ]
    )
    end = [
        _in_a_word(
            "Advice",
            (
                "What to do with the rest of the budget, or with the same compute again if no "
                "budget is known."
            ),
            forecaster_metrics.ADVICE,
            by="advice",
        ),
        number(
            "Evaluations to wait for",
            "Before asking again. 0: decide now.",
            [Query(last(forecaster_metrics.ADVICE_EVALUATIONS, RUN), once=True)],
            width=4,
            decimals=0,
        ),
        number(
            "Chance that the rest pays",
            "Chance that the measured level gains 0.02 or more in the rest, less in proportion for "
            "a small rest. Of a "
            "run that has learned nothing: how often such runs of other groups still took off.",
            [Query(last_chance(RUN), once=True)],
            width=5,
            unit=SHARE,
            decimals=0,
        ),
        number(
            "Gain of the rest",
            "Pass rate that the rest of the budget gains: median and 90 % interval.",
            [
                Query(
                    _sorted_quantiles(forecaster_metrics.ADVICE_GAIN, _REST),
                    "{{quantile}}",
                    once=True,
                )
            ],
            width=5,
        ),
        number(
            "What it costs",
            "Device-hours of the next tenth of the budget, and of all of the rest.",
            [
                Query(
                    f"sort({last(forecaster_metrics.ADVICE_DEVICE_HOURS, RUN, by='stretch')})",
                    "{{stretch}}",
                    once=True,
                )
            ],
            width=5,
        ),
        _in_a_word(
            "Verdict",
            (
                "The forecaster's verdict on the curve. Decide on its numbers only if it is "
                "forecastable or saturated."
            ),
            forecaster_metrics.FORECAST_VERDICT,
            by="verdict",
        ),
        number(
            "A, the asymptote",
            "The pass rate that unlimited compute would reach: median and 90 % interval.",
            _quantiles_of_law(forecaster_metrics.FORECAST_ASYMPTOTE),
            width=5,
        ),
        number(
            "Headroom",
            "A minus the law's pass rate now: the largest possible gain.",
            _quantiles_of_law(forecaster_metrics.FORECAST_HEADROOM),
            width=5,
        ),
        number(
            "At the end of the budget",
            "What the last evaluation will read: median and 90 % interval.",
            [
                Query(
                    _sorted_quantiles(forecaster_metrics.FORECAST_END, _THREE),
                    "{{quantile}}",
                    once=True,
                )
            ],
            width=5,
        ),
        number(
            "Device-hours",
            "Compute of the surviving history, and the end of the budget.",
            [
                Query(
                    f"sum({last(trainer_metrics.COMPUTE_STATE, RUN, by='role')})",
                    "so far",
                    once=True,
                ),
                Query(
                    last(forecaster_metrics.FORECAST_END_DEVICE_HOURS, RUN), "at the end", once=True
                ),
            ],
            width=4,
        ),
        curve(
            "Pass rate against compute",
            "Points: evaluations on held-out prompts. Band: what an evaluation at that compute "
            "will read, median, 50 % "
            "and 90 %. Points of steps that a restart threw away stay visible; the forecast leaves "
            "them out.",
            curve_expression,
            abscissa=HOURS,
            width=16,
            height=11,
            overrides=band(measured=READINGS),
        ),
        rows(
            "Cost of the target",
            "Device-hours since the start at which a reading reaches the target of the top of the "
            "page: the first "
            "point of the run's grid of 40 computes, which are about a sixth apart. Quantile 0.95: "
            "with luck (one in "
            "twenty); 0.5: the median; 0.05: almost surely.",
            [Query(_cost_to_target(), once=True)],
            [
                (
                    "convertFieldType",
                    {"conversions": [{"targetField": "compute", "destinationType": "number"}]},
                ),
                (
                    "groupBy",
                    {
                        "fields": {
                            "quantile": {"operation": "groupby", "aggregations": []},
                            "compute": {"operation": "aggregate", "aggregations": ["min"]},
                        }
                    },
                ),
                (
                    "organize",
                    {"renameByName": {"quantile": "Quantile", "compute (min)": "Device-hours"}},
                ),
            ],
            width=8,
            height=11,
            empty="not within four times the budget",
        ),
        lines(
            "Over time, and beyond now",
            "The same forecast against the clock: compute as it was reached, then at the measured "
            "rate, until the "
            "budget ends. From the forecaster's own query API, the second data source.",
            [
                Query(
                    series(forecaster_metrics.TIMELINE_PASS_RATE, OF_THE_FORECASTER),
                    "{{quantile}}",
                    source=FORECASTER,
                ),
                _newest_reading(),
            ],
            width=12,
            height=9,
            unit=SHARE,
            overrides=band(measured=READINGS),
        ),
        lines(
            "What was forecast, and what came",
            "Band: the forecast of the newest reading at half of its compute. Points: the reading. "
            "One in ten may be "
            "outside; three in a row raise an alert.",
            [_over_time(forecaster_metrics.FORECAST_EARLIER), _newest_reading()],
            width=12,
            height=9,
            unit=SHARE,
            overrides=band(measured=READINGS),
        ),
    ]
    history = [
        lines(
            "The end, as it was forecast",
            "The reading at the end of the budget as forecast at each moment. Trust a forecast "
            "that narrows and "
            "stays inside of its earlier bands.",
            [_over_time(forecaster_metrics.FORECAST_END)],
            width=8,
            unit=SHARE,
            overrides=band(),
        ),
        lines(
            "A, as it was forecast",
            "The asymptote at each moment, median, 50 % and 90 %.",
            [_over_time(forecaster_metrics.FORECAST_ASYMPTOTE)],
            width=8,
            unit=SHARE,
            overrides=band(),
        ),
        states(
            "Verdicts",
            "Which verdict was in force when.",
            [_over_time(forecaster_metrics.FORECAST_VERDICT, "verdict")],
            width=8,
        ),
    ]
    health = [
        lines(
            "Reward and entropy",
            "Mean reward of the batch before filtering, and entropy of the policy in nats. Reward "
            "that rises while "
            "entropy falls to nothing ends in a collapse.",
            [
                _gauge(trainer_metrics.REWARD_MEAN, "reward"),
                _gauge(trainer_metrics.ENTROPY, "entropy (nats)"),
            ],
            width=8,
        ),
        lines(
            "Truncation",
            "Share of rollouts cut off by the token budget, and whose thinking was interrupted. "
            "Above 10 % truncation "
            "destabilises runs.",
            [
                _gauge(trainer_metrics.TRUNCATION_RATIO, "truncated"),
                _gauge(trainer_metrics.INTERRUPTED_RATIO, "interrupted"),
            ],
            width=8,
            unit=SHARE,
            bounds=(0, None),
        ),
        lines(
            "Completion length",
            "Mean tokens of a completion.",
            [_gauge(trainer_metrics.COMPLETION_TOKENS_MEAN, "tokens")],
            width=8,
            bounds=(0, None),
        ),
        lines(
            "Log-prob gap",
            (
                "Mean and largest difference between the log-probs of trainer and generators at "
                "the same tokens, in nats."
            ),
            [
                _gauge(trainer_metrics.LOGPROB_GAP, "mean", 'statistic="mean"'),
                _gauge(trainer_metrics.LOGPROB_GAP, "largest", 'statistic="max"'),
            ],
            width=8,
            overrides={
                "mean": {"custom.lineWidth": 2},
                "largest": {"custom.axisPlacement": "right"},
            },
        ),
        lines(
            "Effective sample size",
            "As a share of the batch's n tokens: (sum rho)^2 / (n sum rho^2), rho being the "
            "probability of the trainer "
            "over that of the generators. 100 % if all ratios are equal; a few large ones lower "
            "it.",
            [_gauge(trainer_metrics.EFFECTIVE_SAMPLE_SHARE, "effective")],
            width=8,
            unit=SHARE,
            bounds=(0, 1),
        ),
        lines(
            "Ratios cut and masked",
            "Tokens whose gradient the loss's clip removed, or whose ratio was truncated, by side; "
            "and tokens that "
            "recipe.corrections.mask left out.",
            [
                _gauge(trainer_metrics.RATIOS_CUT, "low", 'side="low"'),
                _gauge(trainer_metrics.RATIOS_CUT, "high", 'side="high"'),
                _gauge(trainer_metrics.RATIOS_MASKED, "masked"),
            ],
            width=8,
            unit=SHARE,
            bounds=(0, None),
        ),
        lines(
            "KL",
            (
                "Nats per token: KL(generators || trainer), and KL(trainer || reference) if the "
                "recipe has a KL penalty."
            ),
            [
                _gauge(trainer_metrics.GENERATOR_KL, "generators"),
                _gauge(trainer_metrics.REFERENCE_KL, "reference"),
            ],
            width=8,
        ),
        lines(
            "Gradient and loss",
            "Gradient norm before clipping, and the loss of the last update.",
            [
                _gauge(trainer_metrics.GRAD_NORM, "gradient norm"),
                _gauge(trainer_metrics.LOSS, "loss"),
            ],
            width=8,
            overrides={"loss": {"custom.axisPlacement": "right"}},
        ),
        lines(
            "Learning rate",
            "Of the last update.",
            [_gauge(trainer_metrics.LEARNING_RATE, "learning rate")],
            width=8,
        ),
        gauges(
            "Newest reading of each data set",
            (
                "The run's own curve, the parts of its mixture (part:) and downstream sets "
                "(downstream:)."
            ),
            [
                Query(
                    newest_evaluation(
                        evaluation_metrics.EVAL_PASS_RATE, RUN, by="dataset", window=RANGE
                    ),
                    "{{dataset}}",
                    once=True,
                )
            ],
            width=8,
        ),
        lines(
            "Compute",
            (
                "Device-hours of the surviving history and ever spent: they differ after a restart "
                "that lost steps."
            ),
            [
                Query(
                    f"sum by (role) ({series(trainer_metrics.COMPUTE_STATE, RUN)})",
                    "{{role}}, surviving",
                ),
                Query(
                    f"sum by (role) ({series(trainer_metrics.COMPUTE_SPENT, RUN)})",
                    "{{role}}, spent",
                ),
            ],
            width=8,
        ),
        lines(
            "Prompts",
            (
                "Distinct prompts trained on, how often each was used in the mean, and those "
                "retired for good."
            ),
            [
                _gauge(trainer_metrics.UNIQUE_PROMPTS, "distinct"),
                _gauge(trainer_metrics.PROMPTS_RETIRED, "retired"),
                _gauge(trainer_metrics.PROMPT_USES, "mean uses"),
            ],
            width=8,
            overrides={"mean uses": {"custom.axisPlacement": "right"}},
        ),
    ]
    return assemble(
        "run",
        "Run",
        "Where one run will end, how that forecast aged, and whether the run is healthy.",
        [
            ("Where will it end?", end),
            ("How the forecast aged", history),
            ("Health of the run", health),
        ],
        [
            variables.data_source(),
            variables.forecaster(),
            variables.namespace(),
            variables.run(),
            variables.target(),
        ],
        time=("now-12h", "now+12h"),
    )
