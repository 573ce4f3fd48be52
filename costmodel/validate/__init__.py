"""Predictions against measured runs: rows, errors, intervals, ranking.

Pure: (runs, labels) to scores. `cases` reads what a record says of its job and layout.
"""
