"""Notes on scale-up domains: what each gives to the job, and experts that leave theirs."""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.comm import group
from trainplan.costmodel.hardware import NodeGroup
from trainplan.costmodel.layout import Layout


def domain_notes(on: Context) -> Iterator[str]:
    """How the nodes of a job are taken to lie in domains of several nodes."""
    groups = on.job.cluster.groups
    for one in (one for place, one in enumerate(groups) if one not in groups[:place]):
        device = catalog.device(one)
        built, segment = one.built_domain_gpus(device), one.segment_nodes(device)
        most = built // one.gpus_per_node
        if most < 2 or one.num_nodes == 1:
            continue
        nodes = f"{one.num_nodes:,} nodes"
        if segment == one.num_nodes:
            yield f"taken to lie in one NVLink domain of {built} GPUs: all {nodes}"
        elif segment:
            yield (
                f"each NVLink domain of {built} GPUs gives {segment * one.gpus_per_node} to the "
                f"job: {one.num_nodes // segment:,} segments of {segment} nodes; `nvlink_domain` "
                "in the cluster file overrides it"
            )
        else:
            yield (
                f"{nodes} share no number that fits NVLink domains of {most} nodes: domains are "
                "filled to the last node, and groups that cross a border are priced as cut there; "
                f"{_divisible(one)} nodes divide evenly"
            )


def _divisible(one: NodeGroup) -> int:
    """The most nodes, of those of a group, that domains share evenly."""
    device, counts = catalog.device(one), range(one.num_nodes, 0, -1)
    fewer = (one.model_copy(update={"num_nodes": count}) for count in counts)
    return next(few.num_nodes for few in fewer if few.segment_nodes(device))


def expert_notes(on: Context, layout: Layout) -> Iterator[str]:
    """That groups of experts leave their scale-up domain."""
    links = group(on.machine, np.array([layout.ep]), np.array([layout.etp]))
    domains = int(np.ceil(links.nodes[0]))
    if on.job.model.moe and domains > 1:
        etp = f", etp {layout.etp}" if layout.etp > 1 else ""
        yield (
            f"experts leave their scale-up domain: groups of ep {layout.ep}{etp} span {domains} "
            f"domains of {on.machine.domain_gpus} GPUs and exchange tokens over the network"
        )
