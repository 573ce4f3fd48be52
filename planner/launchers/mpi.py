"""A bash script that starts all ranks by Open MPI."""

import shlex
from collections.abc import Iterator

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import EntryPoint, LaunchConfig, RequiredVariable
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    HOSTFILE,
    OWN_FOLDER,
    Launcher,
    alongside,
    argument_arrays,
    arguments_of,
    exports,
    gpus_per_node,
    has_modules,
    head,
    requirements,
    script,
    signal_passed,
)

ADDRESS = (RequiredVariable("MASTER_ADDR", "the address of the first node"),)
HOSTS = (RequiredVariable("HOSTFILE", "a file with a line `name slots=GPUS` for each node"),)
RANKS = (
    'RANK="$OMPI_COMM_WORLD_RANK"',
    'LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK"',
    'WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"',
)
"""What torch reads, from what Open MPI sets. Source: man mpirun, "Environment variables"; torch
`distributed/rendezvous.py`, env://."""


def mpi(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Run it on the first node; the hostfile beside it, or HOSTFILE, names the nodes."""
    nodes, gpus = cluster.num_nodes, gpus_per_node(cluster)
    hosts = (f'HOSTFILE="${{HOSTFILE:-{OWN_FOLDER[1:-1]}/{HOSTFILE}}}"',) if order else ()
    return script(
        ("#!/usr/bin/env bash", *head(config)),
        ("set -euo pipefail",),
        requirements(config, (*ADDRESS, *(() if order or nodes == 1 else HOSTS))),
        alongside(config, OWN_FOLDER),
        (*hosts, f'export MASTER_ADDR MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'),
        exports(config.environment),
        argument_arrays(config),
        signal_passed(config),
        _start(config, nodes, gpus),
    )


def _start(config: LaunchConfig, nodes: int, gpus: int) -> Iterator[str]:
    """The ranks' numbers are known only inside each, hence the inner shell."""
    names = ["MASTER_ADDR", "MASTER_PORT", *(v.name for v in config.environment)]
    names += ["PYTHONPATH"] if has_modules(config) else []
    hosts = ' --hostfile "$HOSTFILE"' if nodes > 1 else ""
    yield f"exec mpirun -np {nodes * gpus} --map-by ppr:{gpus}:node --bind-to none{hosts} \\"
    yield f"  {' '.join(f'-x {name}' for name in names)} \\"
    yield f"  bash -c '{' '.join(RANKS)} exec \"$@\"' rank \\"
    yield f"  {_program(config)}"


def _program(config: LaunchConfig) -> str:
    entry = config.entry_point
    if isinstance(entry, EntryPoint):
        words = f'python -u "${entry.folder.name}/{entry.file}"'
    elif entry.program is None:
        words = f"python -u -m {entry.module}"
    else:
        words = shlex.quote(entry.program)
    return " \\\n  ".join((words, *arguments_of(config)))


MPI = Launcher("run_mpi.sh", mpi, starts="")
