"""The public benchmark: forecasts and advice on a folder of real curves, by Rollcast or by any
program.

curves, windows      the folder, and the beginnings of its curves
protocol, program    a question, its answer, and a process that answers questions
__main__             Rollcast as such a program
simple_forecasts     six methods without intervals that a forecast must beat
forecast_scores      how good the forecasts are
followed_advice      advice that is asked at half of a run and followed, next to simple rules
advice_scores        how much the advice is worth
measure              the whole benchmark on all cores
report               `rollcast backtest --corpus`: options, tables
"""
