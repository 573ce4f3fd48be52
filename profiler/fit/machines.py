"""The machines of a profile, as commands take them."""

from trainplan.costmodel.hardware import ClusterSpec, NodeGroup
from trainplan.costmodel.measured import measured_links
from trainplan.costmodel.profiles import Profile


def cluster_of(profile: Profile) -> ClusterSpec:
    """The machines a profile was measured on, as a cluster."""
    group = NodeGroup(
        gpu=profile.gpu,
        device=profile.device,
        num_nodes=profile.num_nodes,
        gpus_per_node=profile.gpus_per_node,
    )
    links = measured_links(profile)
    name = f"{profile.num_nodes}x{profile.gpus_per_node}:{profile.gpu}"
    return ClusterSpec(name=name, groups=(group,), links=links)
