"""Uneven stages: is another split of the layers faster than the best even one, at most by how much?

`search` goes on where the even search ended. `problem` is a layout whose layers are not split yet,
`bounds` holds for all its splits at once, `solve` finds the best one by integer program and
simulation, `heterogeneous` does the same where ranks live in unlike node groups.
"""
