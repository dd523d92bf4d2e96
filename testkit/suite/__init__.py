"""How the tests of this repository are selected, ordered, measured and proven again.

near.py     `make near`: the tests nearest to what changed
whole.py    `make test`: the core tests, then the proofs that are due
prove.py    `make proofs`: the proofs that are due, or those that are named
"""
