"""Layouts beside each other: two of them, one and a plan, plans at values of parameters.

`remedy` has what makes a layout run that is illegal or too large.
"""
