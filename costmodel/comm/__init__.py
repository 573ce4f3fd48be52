"""Seconds of collectives and messages on the links of a machine.

`topology` says which ranks form a group and what link carries it, `collectives` what a collective
takes there, `neighbours` which ranks of a placement talk to each other.
"""

from trainplan.costmodel.comm.collectives import bus_factor, collective_seconds
from trainplan.costmodel.comm.topology import group

__all__ = ["bus_factor", "collective_seconds", "group"]
