"""What lines of a log say of how a run fails, in whatever format.

A rank that fails takes the others with it, and torchrun tells of both: what counts is the first
error of a rank itself. Messages of a connection that broke count only where nothing else is there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainplan.profiler.logs import COLOUR

OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP|XPU|NPU) (?:error: )?out of memory|CUBLAS_STATUS_ALLOC_FAILED"
    r"|DefaultCPUAllocator: can't allocate memory|std::bad_alloc|^MemoryError"
    r"|oom[-_]kill|OOM Killed|OUT_OF_MEMORY|Cuda failure (?:\d+ )?'out of memory'",
    re.IGNORECASE | re.MULTILINE,
)
"""Source: pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp and c10/core/impl/alloc_cpu.cpp (their
messages); NVIDIA/nccl src/include/checks.h; SchedMD/slurm src/slurmd/slurmstepd/mgr.c."""
RANK_ENDED = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+)")
"""Of the first rank that ended; torchrun ends the others, and lists them with their signals.

Source: torch/distributed/elastic/multiprocessing/api.py, `SubprocessContext._poll`."""
TERMINATED = re.compile(
    r"Received (?:(?:Signals\.)?SIG(?:TERM|HUP)|15|1) death signal"
    r"|\*\*\* JOB \d+ ON \S+ CANCELLED"
)
"""Source: torch/distributed/elastic/agent/server/api.py; SchedMD/slurm
src/slurmd/slurmstepd/req.c."""
LOST_NODE = re.compile(
    r"DUE TO NODE FAILURE|NODE_FAIL|Node failure on"
    r"|uncorrectable (?:NVLink |ECC )?error|GPU has fallen off the bus|GPU is lost"
    r"|CUDA error: (?:hardware|system not yet initialized)",
    re.IGNORECASE,
)
"""Source: SchedMD/slurm src/srun/libsrun/launch.c; NVIDIA, CUDA Runtime API, error codes 214, 220,
802; NVIDIA, XID Errors, 79."""
BROKEN_CONNECTION = re.compile(
    r"ncclRemoteError|remote process exited or there was a network error|ncclSystemError"
    r"|Connection (?:reset|closed|refused) by (?:remote )?peer|Broken pipe|connection was closed"
    r"|failed to recv, got 0 bytes|DistNetworkError|RendezvousConnectionError"
    r"|NCCL communicator was aborted",
    re.IGNORECASE,
)
"""Source: NVIDIA/nccl src/init.cc `ncclGetErrorString`; pytorch/pytorch
torch/csrc/distributed/c10d/TCPStore.cpp."""
TIMED_OUT = re.compile(
    r"Watchdog caught collective operation timeout|Timed out waiting \d+\s*ms for (?:recv|send)"
    r"|Timed out after \d+ seconds"
)
"""Source: pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; gloo
transport/tcp/unbound_buffer.cc."""
PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]: ?|\d+: )")
"""Of the rank that says a line: by torch, by torchrun's --tee, by srun's --label."""
TRACEBACK = "Traceback (most recent call last)"
QUOTED = "    "
"""Before the source that a traceback quotes."""
ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?P<message>: .+|$)")
SCRIPT_ERROR = re.compile(
    r"^(?:.*/)?[\w.-]+: line \d+: .+|: error: .+|No module named .+|^Set [A-Z_]+: .+"
    r"|^\w+ is '.*', and there is no .+|^There is no \S+ .+"
)
"""Of bash, of a parser of options, of Python, and of the scripts of `plan export`."""
WORD = re.compile(r"\w")
"""Something but rules and brackets."""
WRAPPER = re.compile(r"ChildFailedError|SignalException|ProcessRaisedException|SystemExit")
"""What torchrun raises around the error of a rank."""


@dataclass(slots=True)
class Symptoms:
    """The first line of each kind; empty: none."""

    out_of_memory: str = ""
    rank: int | None = None
    """The first rank of a node that ended otherwise than well."""
    code: int | None = None
    """Its exit code, negative for a signal."""
    terminated: str = ""
    lost_node: str = ""
    broken_connection: str = ""
    timed_out: str = ""
    raised: str = ""
    """The error at the end of a traceback."""
    named: str = ""
    """An error without one, which may have been caught."""
    script_error: str = ""
    """Of what starts the ranks."""
    in_traceback: bool = False
    quoted: str = ""
    """The last line of a program that a traceback quotes."""
    last: str = ""
    """The last line with anything on it."""

    def feed(self, lines: Iterable[str]) -> None:
        """Take lines in their order."""
        for raw in lines:
            line = PREFIX.sub("", COLOUR.sub("", raw))
            if WORD.search(line):
                self.last = line.strip()
                if line.startswith(QUOTED):
                    self.quoted = self.last
                else:
                    self._take(self.last)

    def _take(self, line: str) -> None:
        ended = RANK_ENDED.search(line)
        if ended and self.code is None:
            self.rank, self.code = int(ended["rank"]), int(ended["code"])
        for name, pattern in KINDS:
            if not getattr(self, name) and pattern.search(line):
                setattr(self, name, line)
        self.in_traceback |= line.startswith(TRACEBACK)
        if WRAPPER.search(line) or BROKEN_CONNECTION.search(line):
            return
        found = ERROR.match(line)
        if found and self.in_traceback:
            self.in_traceback = False
            self.raised = self.raised or (line if found["message"] else f"{line}: {self.quoted}")
        elif found:
            self.named = self.named or line
        elif SCRIPT_ERROR.search(line):
            self.script_error = self.script_error or line

    @property
    def error(self) -> str:
        """The first of a rank."""
        return self.raised or self.named

    @property
    def fails(self) -> bool:
        """Has a rank ended, or no memory to go on?"""
        return bool(self.out_of_memory or self.code is not None)


KINDS = (
    ("out_of_memory", OUT_OF_MEMORY),
    ("terminated", TERMINATED),
    ("lost_node", LOST_NODE),
    ("broken_connection", BROKEN_CONNECTION),
    ("timed_out", TIMED_OUT),
)
