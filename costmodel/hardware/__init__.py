"""The machine as it is stated: GPUs, nodes, network cards, hosts, drives, links. No formulas.

AttentionFit: fraction of peak of fused causal attention.
ClusterSpec: a cluster of one or more groups of equal nodes.
CollectiveFit: seconds of a collective.
CPU: vendor and architecture of what a profile measured on a machine without GPUs.
DIGITS: digits of a count that are read.
DriveSpec: drives of one node that a training may write to.
EvidenceKind: what a fit rests on: measurements of the GPU, of its kind, or its data sheet.
FabricTier: one level of the scale-out network, inner to outer.
FailureSpec: how often nodes fail, and how a run is saved.
Fit: a curve of one GPU.
FittedConstants: what was fitted on measurements of one GPU type.
GemmFit: seconds of a product.
GpuSpec: datasheet of one GPU as it is mounted in its usual node.
HostSpec: the host of one node: memory, copies, drives.
LinkSpec: bandwidth between every two nodes, as measured.
MOST_GPUS: larger clusters are a typing slip, and the search would list their divisors for hours.
MOST_GPUS_PER_NODE: bound of what one node can state.
MOST_LINKED_NODES: a matrix of more nodes does not fit in a configuration file.
MOST_NODES: bound of what a cluster can state.
NicSpec: network adapters of one node.
NODE_NAME: pattern of the name of a node.
NodeGroup: nodes that are equal.
parse_cluster: read the short form `8x8:h100-sxm[@HOST]` (several groups joined with `+`).
Placement: which node holds which ranks, chosen on measured links.
Transport: what carries messages between nodes.
"""

from trainplan.costmodel.hardware.cluster import (
    DIGITS,
    MOST_GPUS,
    MOST_GPUS_PER_NODE,
    MOST_LINKED_NODES,
    MOST_NODES,
    NODE_NAME,
    ClusterSpec,
    DriveSpec,
    FabricTier,
    HostSpec,
    LinkSpec,
    NicSpec,
    NodeGroup,
    Placement,
    Transport,
    parse_cluster,
)
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.hardware.gpu import (
    CPU,
    AttentionFit,
    CollectiveFit,
    EvidenceKind,
    Fit,
    FittedConstants,
    GemmFit,
    GpuSpec,
)
