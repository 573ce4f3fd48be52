"""A cluster as the numbers formulas use, and the seconds of one GPU's operations.

A `Machine` is made of catalog and fitted constants, each with its provenance: measured, fitted,
datasheet or assumed. `compute` gives seconds of products, attention and elementwise work;
`uncertainty` says how far a step time may be off.
"""

from trainplan.costmodel.machine.constants import Machine, machine_of

__all__ = ["Machine", "machine_of"]
