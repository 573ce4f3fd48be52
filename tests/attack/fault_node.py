"""`plan profile` with fast items: as a node's command, and as each of its ranks.

python fault_node.py plan profile --output profile.json ...    a node
python -m fault_node --request ...                              a rank, as a node starts it
"""

import os
import sys
import time
from functools import partial

TASKS = 16
HANG = "FAULT_HANG"
"""Number of the rank that hangs while it loads its libraries."""

if __name__ == "__main__" and os.environ.get(HANG) == os.environ.get("RANK", "none"):
    time.sleep(600)

from trainplan.costmodel.profiles.profile import CollectivePoint, StreamPoint  # noqa: E402
from trainplan.profiler.task import Item, MeasurementTask  # noqa: E402


def alone(number, clock):
    """A task of rank 0."""
    time.sleep(0.05)
    yield StreamPoint(name="copy", moved_bytes=number + 1, time=clock.timing_of([1e-3] * 6))


def together(number, clock):
    """A task of all ranks."""
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    for _ in range(3):
        time.sleep(0.03)
        dist.all_reduce(torch.ones(1024))
    yield CollectivePoint(
        operation="all_reduce",
        ranks=dist.get_world_size(),
        per_node=dist.get_world_size(),
        num_bytes=4 * (number + 1),
        time=clock.timing_of([1e-3] * 6),
    )


def tasks(request, place):
    """Tasks of rank 0 and of all by turns."""
    for number in range(TASKS):
        both = bool(number % 2)
        measure = partial(together if both else alone, number)
        yield MeasurementTask(f"task {number}", measure, together=both)


def node(arguments):
    """The command line, with these items in place of the real ones."""
    from trainplan.cli import main  # noqa: PLC0415
    from trainplan.cli.commands import profile  # noqa: PLC0415
    from trainplan.cli.files import measuring  # noqa: PLC0415

    measuring.run = partial(measuring.run, module="fault_node")
    profile.num_gpus = lambda limits, pause: 0
    sys.argv = arguments
    main.main()


if __name__ == "__main__":
    if sys.argv[1] == "plan":
        node(sys.argv[1:])
    from trainplan.profiler.launch.session import main as session

    sys.exit(session(items={"fast": Item("fast", "little", tasks)}))
