"""A task of SkyPilot.

Source: SkyPilot documentation, "Distributed Multi-Node Jobs" (SKYPILOT_NODE_IPS and siblings), and
its catalog of accelerators (names).
"""

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.launchers.kubernetes import yaml_file
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    Launcher,
    gpus_per_node,
    manifest_script,
    no_order,
)

ACCELERATORS = {
    "a100-sxm-40gb": "A100",
    "a100-sxm-80gb": "A100-80GB",
    "a10g": "A10G",
    "b200": "B200",
    "h100-sxm": "H100",
    "h200-sxm": "H200",
    "l4": "L4",
    "l40s": "L40S",
    "mi300x": "MI300X",
    "t4": "T4",
    "v100-sxm-32gb": "V100-32GB",
}
"""SkyPilot's names of accelerators, by ours."""

RECOVERY = {"job_recovery": {"max_restarts_on_errors": 3}}
"""Of a managed job. Source: skypilot 0.14.1 `utils/schemas.py`, job_recovery."""
RENDEZVOUS = (
    '--node_rank "$SKYPILOT_NODE_RANK"',
    "--master_addr \"${SKYPILOT_NODE_IPS%%$'\\n'*}\"",  # the first of the lines
    f'--master_port "${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"',
)


def skypilot(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """A task of as many nodes as the cluster has."""
    no_order(order, "SkyPilot")
    kinds = sorted({group.gpu for group in cluster.groups})
    if len(kinds) > 1 or kinds[0] not in ACCELERATORS:
        raise UnsupportedError(
            f"SkyPilot starts nodes of one accelerator it knows, not {' and '.join(kinds)}: use "
            "another --launcher"
        )
    nodes, gpus = cluster.num_nodes, gpus_per_node(cluster)
    document = {
        "name": "trainplan",
        "num_nodes": nodes,
        "resources": {
            "accelerators": f"{ACCELERATORS[kinds[0]]}:{gpus}",
            **(RECOVERY if config.operations else {}),
        },
        "envs": {variable.name: "" for variable in config.required_environment},
        "run": manifest_script(config, RENDEZVOUS, cluster),
    }
    return yaml_file(config, document, "set the values under envs, and `setup` where it is needed")


SKYPILOT = Launcher("task.yaml", skypilot, starts="sky launch", carries_files=True)
