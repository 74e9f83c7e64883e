"""The paper's family: every window is replaced by a matrix of low rank, overlapping ones averaged.

`solve` solves a grid of windows, `factors` holds what they gave, `combine` makes the estimate and
its variance of them, and `errors` answers all questions about the error.
"""
