"""The scaling curve of a run: law, posterior, and the decisions that follow (numpy and scipy only).

Later rooms import earlier ones, never the reverse.

law/        the law, and points of runs
    curve.py             points of a run, the sigmoid
    observations.py      points merged and rotated
    baselines.py         power law, last value, the paper's own grid
    model_size.py        the power law across model sizes; batch_shape.py: the law across splits of
                         a step
    evaluation_error.py  how well an evaluation can measure

posterior/  the law given the points
    prior.py, options.py     beliefs, and how to fit; prior_file.py: a prior as a JSON file
    departure.py             first phases, tails and breaks: ways to leave the law
    grid.py                  the posterior at the nodes of a grid; normal_equations.py: its linear
                             part
    placement.py             the places of the nodes
    draws.py                 equally likely settings, drawn from the grid
    fitting.py               from a curve to its posterior
    turns.py                 jumps that no window foretells
    stack.py                 how to combine the law with simple methods; learned.json has the
                             numbers

outlook/    what later evaluations will read
    simple.py                simple methods: last readings, slopes
    combined.py              the law's forecast and theirs, averaged

sweep/      which of several arms deserves the next slice of one budget
    state.py                 arms, runs, readings; prior.py: how arms of one experiment differ
    belief.py                all arms at the target, jointly
    policy.py                the slice that improves the choice most

decisions/  verdict, forecast and decisions
    fit.py                   fit(curve, options) -> Forecast
    forecast.py              the questions that a forecast answers; digits.py: how differences are
                             printed
    verdict.py               what kind of curve it is; no_learning.py, falls.py, breaks.py,
                             misfit.py: others
    smoothing.py             running means
    backtest.py              what would have been forecast earlier
    advice.py                stop, continue or wait; look_ahead.py: what each is worth;
                             advice_words.py: its words; paid_compute.py: on which compute
    stopping.py              the opt-in rule that stops a run
    allocation.py            which of several runs to stop
    compare.py               which run is better; leave_one_out.py, repeats.py: what each part of a
                             recipe is worth
    size_choice.py           at which budget the best model size changes; batch_choice.py: the best
                             split of a step
"""
