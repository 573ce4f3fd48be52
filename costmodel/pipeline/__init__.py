"""Layers on stages, stages on ranks, and a proven lower bound of the pipelined part of a step.

`stages` fills virtual stages with layers, `ranks` sums what each pipeline rank holds, `node_groups`
says which ranks live in which machines, `bound` is the closed form that never exceeds a
simulation.
"""
