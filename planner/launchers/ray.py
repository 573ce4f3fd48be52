"""Start a program that starts its ranks by Ray: one process on the first node of its cluster."""

from collections.abc import Iterator

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    gpus_per_node,
    program,
)

ADDRESS = '"$MASTER_ADDR:$MASTER_PORT"'


def ray_start(config: LaunchConfig, cluster: ClusterSpec, number: str) -> Iterator[str]:
    """Lines that every node runs; `number` is the variable with that of the node.

    Source: docs.ray.io, `ray start` (--head, --block) and `ray health-check`.
    """
    if cluster.num_nodes > 1:
        yield f'MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'
        yield from joined(cluster, number)
    yield f"python3 {program(config)}"


def joined(cluster: ClusterSpec, number: str) -> Iterator[str]:
    """Make one cluster of all nodes; behind it the first node goes on, alone."""
    gpus = gpus_per_node(cluster)
    yield f'if [[ "${number}" != 0 ]]; then'
    yield f"  until ray health-check --address {ADDRESS}; do sleep 5; done"
    yield f"  ray start --address {ADDRESS} --num-gpus {gpus} --block || true"
    yield "  exit 0"
    yield "fi"
    yield 'ray start --head --node-ip-address "$MASTER_ADDR" --port "$MASTER_PORT" \\'
    yield f"  --num-gpus {gpus} --disable-usage-stats"
    yield 'trap "ray stop" EXIT'
    yield f"export RAY_ADDRESS={ADDRESS}"
    yield "# ranks are placed on the nodes that have joined by then"
    yield f'until ray status | grep -qF "/{cluster.num_gpus}.0 GPU"; do sleep 5; done'
