"""What is started on which nodes, and the names of what a run writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainplan.costmodel.base import SpecError
from trainplan.profiler.launch.scheduler import Budget

START_SECONDS = 300.0
"""Until all nodes are there, and then until all ranks have loaded their libraries.

Source: assumed. torch's own agents wait as long for each other: torch/distributed/elastic/agent/
server/api.py, `exit_barrier_timeout`.
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """Processes of a run, and this node's part in it."""

    nproc_per_node: int
    nnodes: int = 1
    node_rank: int = 0
    """Node 0 writes the journal."""
    rdzv_endpoint: str = ""
    """`host:port` of node 0, where there are several nodes."""
    timeout_seconds: float = 60.0
    """Longest time for one task."""
    start_seconds: float = START_SECONDS
    budget: Budget | None = None
    """Of the whole run, start included, which node 0 keeps; none: all is measured."""

    @property
    def ranks(self) -> range:
        """Those of this node."""
        first = self.node_rank * self.nproc_per_node
        return range(first, first + self.nproc_per_node)

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of node 0.

        Raises:
            SpecError: The text is no `host:port`.
        """
        host, _, port = self.rdzv_endpoint.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise SpecError(
                f"--rdzv-endpoint {self.rdzv_endpoint!r} is no HOST:PORT: give the address of "
                "node 0 and a port that is free there, node0:6000"
            )
        return host, int(port)


@dataclass(frozen=True, slots=True)
class Files:
    """What a run writes, on node 0."""

    journal: Path
    lock: Path

    @classmethod
    def of_output(cls, output: Path) -> Files:
        """Their names begin with that of the output."""
        return cls(
            output.with_name(f"{output.name}.journal.jsonl"),
            output.with_name(f"{output.name}.lock"),
        )
