"""What a record says of the network between its nodes."""

from __future__ import annotations

from trainplan.costmodel import catalog
from trainplan.costmodel.spec.cluster import NicSpec
from trainplan.costmodel.spec.evidence.measured_run import RunCluster
from trainplan.costmodel.spec.gpu import GpuSpec

UNSTATED_NIC = 3.125
"""GB/s of one GPU where neither the run nor the catalog says: 100 Gb/s Ethernet for four GPUs.

Source: assumed; AWS g5 and GCP g2 nodes of the published runs.
"""


def nic_of(cluster: RunCluster, gpu: str, per_node: int) -> NicSpec | None:
    """Network of one node; null: that of the catalog."""
    stated, spec = cluster.nominal_inter_gb_per_s, catalog.gpu(gpu)
    if isinstance(stated, float):
        return NicSpec(per_node=per_node, gb_per_s=_of_one_gpu(stated, spec, per_node))
    if cluster.gpu is None or spec.nic_gb_per_s is None:
        return NicSpec(per_node=per_node, gb_per_s=UNSTATED_NIC)
    return None


def _of_one_gpu(stated: float, spec: GpuSpec, per_node: int) -> float:
    """GB/s of one GPU; a figure that no GPU of the kind can send is that of its node.

    The wider of its host link and its usual adapter bounds what one GPU sends.
    Source: derived; foundation-model-stack/fms-fsdp README: "A100 80G 128 GPUs with 400Gbps" and
    "H100 96 GPUs with 800 Gbps", eight in a node; an A100 has 256 Gb/s of PCI Express 4.0.
    """
    adapter = spec.nic_gb_per_s.value if spec.nic_gb_per_s else 0.0
    widest = max(spec.host_gb_per_s.value, adapter)
    return stated / per_node if stated > widest else stated
