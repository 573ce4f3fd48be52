"""Uneven stages: is another split of the layers faster than the best even one, at most by how much?

`search` goes on where the even search ended. `problem` is a layout whose layers are not split yet,
on equal nodes or in unlike groups, `bounds` holds for all its splits at once, `solve` finds the
best one by lists, moves and simulation, `contexts` asks all three on equal nodes and in groups.
"""
