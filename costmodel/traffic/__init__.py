"""Weights and gradients on the wire: data parallelism, sharding, and how much of it is overlapped.

`data_parallel` has what comes once a step and which passes it can run beside, `sharded` what ZeRO-2
and 3 do in every pass.
"""
