"""One task a kind of problem.

What the loop asks of a task stands in `protocols`; what is predicted of a row, its loss and its metrics in `target`.
"""
