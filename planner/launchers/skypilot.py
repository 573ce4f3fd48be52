"""A task of SkyPilot.

Source: SkyPilot documentation, "Distributed Multi-Node Jobs" (SKYPILOT_NODE_IPS and siblings), and
its catalog of accelerators (names).
"""

from __future__ import annotations

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.spec import ClusterSpec
from trainplan.planner.exporters.config import LaunchConfig
from trainplan.planner.launchers.kubernetes import yaml_file
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    Launcher,
    argument_arrays,
    carried,
    exports,
    gpus_per_node,
    no_order,
    num_nodes,
    program,
    requirements,
    script,
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

FIRST_NODE = "MASTER_ADDR=\"${SKYPILOT_NODE_IPS%%$'\\n'*}\""


def skypilot(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """A task of as many nodes as the cluster has."""
    no_order(order, "SkyPilot")
    kinds = sorted({group.gpu for group in cluster.groups})
    if len(kinds) > 1 or kinds[0] not in ACCELERATORS:
        raise UnsupportedError(
            f"SkyPilot starts nodes of one accelerator it knows, not {' and '.join(kinds)}: use "
            "another --launcher"
        )
    nodes, gpus = num_nodes(cluster), gpus_per_node(cluster)
    document = {
        "name": "trainplan",
        "num_nodes": nodes,
        "resources": {"accelerators": f"{ACCELERATORS[kinds[0]]}:{gpus}"},
        "envs": {variable.name: "" for variable in config.required_environment},
        "run": _text(config, nodes, gpus),
    }
    return yaml_file(config, document, "set the values under envs, and `setup` where it is needed")


def _text(config: LaunchConfig, nodes: int, gpus: int) -> str:
    words = (
        f"exec torchrun --nnodes {nodes} --nproc_per_node {gpus}",
        '--node_rank "$SKYPILOT_NODE_RANK" --master_addr "$MASTER_ADDR"',
        f'--master_port "${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"',
    )
    return script(
        ("set -euo pipefail",),
        requirements(config),
        carried(config),
        ("# the first node is where the processes find each other", FIRST_NODE),
        exports(config.environment),
        argument_arrays(config),
        (" \\\n  ".join((*words, program(config))),),
    )


SKYPILOT = Launcher("task.yaml", skypilot, starts="sky launch", carries_files=True)
