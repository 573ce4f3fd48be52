"""One file a question: search, estimate, explain, why-not, compare, sweep, simulate, remedies.

These are the verbs behind the commands and of `trainplan.planner`. `changes` has the same job with
one thing changed.
"""
