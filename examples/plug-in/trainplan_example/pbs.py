"""A PBS job: MPICH's mpiexec starts one torchrun on each node, and these find each other."""

from trainplan.costmodel.hardware.cluster import ClusterSpec
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.launchers.registry import Launcher
from trainplan.planner.launchers.script import (
    alongside,
    argument_arrays,
    exports,
    gpus_per_node,
    head,
    no_order,
    program,
    requirements,
    script,
)


def pbs(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Submit it from its folder."""
    no_order(order, "PBS")
    nodes, gpus = cluster.num_nodes, gpus_per_node(cluster)
    return script(
        ("#!/usr/bin/env bash", f"#PBS -l select={nodes}:ngpus={gpus}", *head(config)),
        ("set -euo pipefail",),
        requirements(config),
        alongside(config, '"$PBS_O_WORKDIR"'),
        exports(config.environment),
        argument_arrays(config),
        (
            f"exec mpiexec -n {nodes} -ppn 1 torchrun --nnodes {nodes} --nproc_per_node {gpus} \\",
            '  --rdzv_backend c10d --rdzv_endpoint "$(head -n 1 "$PBS_NODEFILE"):29500" \\',
            f'  --rdzv_id "$PBS_JOBID" {program(config)}',
        ),
    )


PBS = Launcher("run.pbs", pbs, starts="qsub")
