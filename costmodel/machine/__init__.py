"""A cluster as the numbers formulas use: speeds, sizes, curves and where each of them comes from.

A `Machine` is made of catalog and fitted constants, each with its provenance: measured, fitted,
datasheet or assumed. Seconds of its operations are in `kernels` and `comm`.

curve_name: name of the fit of an operation in groups of a size and stride inside one domain.
Drives: all drives of one node: bytes, and bytes per second each way.
element_bytes: bytes of one element of a product's operand, by precision.
GemmRate: curve of matrix products in one precision: FLOP/s, bytes/s, seconds to start.
GROUP_SIZES: GPUs in the groups whose collectives have fits.
Machine: speeds (bytes and FLOP per second of one GPU), memory bytes and links of a cluster.
machine_of: the machine of a cluster for one precision.
MESSAGES: name of the fit of messages between two neighbours of a node.
nearest_stride: the largest stride up to one at which groups of a size have a fit.
OPERATIONS: the collectives that have fits, in the order of the rows of their tables.
PRODUCTS: last words of the provenance of matrix products.
Provenance: quantity, kind and source of one number of a machine.
SHAPES: (GPUs, stride) of the columns of the tables of collectives.
SourceKind: measured, fitted, datasheet or assumed.
stride_column: index into STRIDES of each distance.
STRIDED: mark of a stride in names of fits.
STRIDED_GROUPS: the provenance of groups of GPUs that are no neighbours.
STRIDES: distances of a group's members that have fits of their own.
with_reserve: the machine with bytes of every GPU and host left to another tenant.
"""

from trainplan.costmodel.machine.constants import machine_of
from trainplan.costmodel.machine.hardware import (
    GROUP_SIZES,
    MESSAGES,
    OPERATIONS,
    PRODUCTS,
    SHAPES,
    STRIDED,
    STRIDED_GROUPS,
    STRIDES,
    GemmRate,
    Provenance,
    SourceKind,
    curve_name,
    element_bytes,
    nearest_stride,
    stride_column,
)
from trainplan.costmodel.machine.hosts import with_reserve
from trainplan.costmodel.machine.machine import Drives, Machine
