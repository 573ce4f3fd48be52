"""A question that is asked of a search, and the same with one thing of it changed.

A case is a job, its options and what was measured of its machine; `feasibility` finds which changes
let something fit.
"""
