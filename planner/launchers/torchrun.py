"""A bash script that runs on every node and starts torchrun."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.costmodel.spec import ClusterSpec
from trainplan.planner.exporters.config import LaunchConfig, RequiredVariable
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    LaunchFile,
    argument_arrays,
    beside,
    exports,
    gpus_per_node,
    head,
    num_nodes,
    program,
    requirements,
    script,
)

RENDEZVOUS = (
    RequiredVariable("MASTER_ADDR", "the address of the first node, the same on every node"),
    RequiredVariable("NODE_RANK", "the number of this node, from 0"),
)


def torchrun(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> LaunchFile:
    """`run.sh`: run it once on every node; `order` names them in rank order."""
    nodes, gpus = num_nodes(cluster), gpus_per_node(cluster)
    text = script(
        ("#!/usr/bin/env bash", *head(config), *_numbers(order)),
        ("set -euo pipefail",),
        requirements(config, RENDEZVOUS if nodes > 1 else ()),
        beside(config, '"$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"'),
        exports(config.environment),
        argument_arrays(config),
        _start(config, nodes, gpus),
    )
    return LaunchFile("run.sh", text, executable=True)


def _numbers(order: tuple[str, ...]) -> Iterator[str]:
    """Which node gets which number."""
    if len(order) > 1:
        yield "#"
        yield "# The order of the nodes was chosen for their measured links. MASTER_ADDR is the"
        yield "# address of the first; on each of them NODE_RANK is:"
        yield from (f"#   {number} on {name}" for number, name in enumerate(order))


def _start(config: LaunchConfig, nodes: int, gpus: int) -> Iterator[str]:
    command = f"exec torchrun --nnodes {nodes} --nproc_per_node {gpus}"
    if nodes == 1:
        yield f"{command} --standalone \\\n  {program(config)}"
        return
    yield f'MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'
    yield f'{command} --node_rank "$NODE_RANK" \\'
    yield '  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \\'
    yield f"  {program(config)}"
