"""Bytes of a rank at its fullest moment, by what needs them.

States (weights, gradients, optimizer), saved tensors in flight, transients, and overheads of
communicators, context and allocator. `rank` adds them up for every pipeline rank of every row.
"""
