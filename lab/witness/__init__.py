"""Two questions on real runs: does a second signal foresee a collapse, or the end, better than the
curve does?
"""
