"""A bash script that runs on every node and starts torchrun."""

from collections.abc import Iterable, Iterator

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig, RequiredVariable
from trainplan.planner.launchers.ray import ray_start
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    OWN_FOLDER,
    Launcher,
    alongside,
    argument_arrays,
    exports,
    head,
    no_order,
    program,
    requirements,
    script,
    signal_passed,
    torchrun_of,
)

RENDEZVOUS = (
    RequiredVariable("MASTER_ADDR", "the address of the first node, the same on every node"),
    RequiredVariable("NODE_RANK", "the number of this node, from 0"),
)
MEETING = (
    RequiredVariable("RDZV_ENDPOINT", "host:port of one of the nodes, the same on every node"),
    RequiredVariable("RDZV_ID", "any name of this run, the same on every node"),
)


def torchrun(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Run it once on every node; `order` names them in rank order."""
    required = RENDEZVOUS if cluster.num_nodes > 1 else ()
    return _script(config, required, _start(config, cluster), _numbers(order))


def torchrun_c10d(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Run it once on every node, in any order: the nodes find each other and are numbered then.

    Source: torch.distributed.run, --rdzv-backend c10d.
    """
    no_order(order, "the rendezvous")
    if cluster.num_nodes == 1:
        return torchrun(config, cluster)
    command = f"exec {torchrun_of(config, cluster)} --rdzv_backend c10d"
    start = (
        f"{command} \\",
        '  --rdzv_endpoint "$RDZV_ENDPOINT" --rdzv_id "$RDZV_ID" \\',
        f"  {program(config)}",
    )
    return _script(config, MEETING, start)


def _script(
    config: LaunchConfig,
    required: Iterable[RequiredVariable],
    start: Iterable[str],
    numbers: Iterable[str] = (),
) -> str:
    return script(
        ("#!/usr/bin/env bash", *head(config), *numbers),
        ("set -euo pipefail",),
        requirements(config, required),
        alongside(config, OWN_FOLDER),
        exports(config.environment),
        argument_arrays(config),
        signal_passed(config),
        start,
    )


def _numbers(order: tuple[str, ...]) -> Iterator[str]:
    """Which node gets which number."""
    if len(order) > 1:
        yield "#"
        yield "# The order of the nodes was chosen for their measured links. MASTER_ADDR is the"
        yield "# address of the first; on each of them NODE_RANK is:"
        yield from (f"#   {number} on {name}" for number, name in enumerate(order))


def _start(config: LaunchConfig, cluster: ClusterSpec) -> Iterator[str]:
    if config.by_ray:
        yield from ray_start(config, cluster, "NODE_RANK")
        return
    command = f"exec {torchrun_of(config, cluster)}"
    if cluster.num_nodes == 1:
        yield f"{command} --standalone \\\n  {program(config)}"
        return
    yield f'MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'
    yield f'{command} --node_rank "$NODE_RANK" \\'
    yield '  --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" \\'
    yield f"  {program(config)}"


TORCHRUN = Launcher("run.sh", torchrun, starts="", starts_ray=True)
TORCHRUN_C10D = Launcher("run.sh", torchrun_c10d, starts="")
