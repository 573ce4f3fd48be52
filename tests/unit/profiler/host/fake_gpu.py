"""A GPU and its host on one clock: a queue of kernels, a host that launches them, no torch."""

from collections import deque
from types import SimpleNamespace

RESOLUTION = 0.5e-6
"""Of events, as CUDA's."""
POLL = 1e-6
"""What a look at an event takes of the host."""


class FakeGpu:
    """Kernels run in order, each when it is queued and the one before has ended."""

    def __init__(self, cycles_per_second=1.5e9, depth=1024):
        self.host, self.free, self.depth = 0.0, 0.0, depth
        self.cycles_per_second = cycles_per_second
        self.queued = deque()
        """Ends of kernels not yet run."""
        self.run_seconds = 0.0
        self.delays = []
        """Seconds of each kernel that spins."""

    def now(self):
        return self.host

    def sleep(self, seconds):
        self.host += seconds

    def launch(self, seconds, host_seconds=5e-6, *, not_before=0.0):
        """A kernel; with a full queue the host waits until there is room."""
        self.host += host_seconds
        while self.queued and self.queued[0] <= self.host:
            self.queued.popleft()
        if len(self.queued) >= self.depth:
            self.host = self.queued.popleft()
        self.free = max(self.host, self.free, not_before) + seconds
        self.run_seconds += seconds
        self.queued.append(self.free)

    def kernel(self, seconds, host_seconds=5e-6):
        return lambda: self.launch(seconds, host_seconds)

    def synchronize(self, device=None):
        self.host = max(self.host, self.free)

    def spin(self, cycles):
        self.delays.append(cycles / self.cycles_per_second)
        self.launch(self.delays[-1])

    def torch(self):
        """What the clock asks of torch."""
        cuda = SimpleNamespace(
            Event=lambda enable_timing: FakeEvent(self),
            synchronize=self.synchronize,
            _sleep=self.spin,
        )
        return SimpleNamespace(cuda=cuda)


class FakeEvent:
    """A mark that is reached when all that was queued before it has run."""

    def __init__(self, gpu):
        self.gpu, self.at = gpu, None

    def record(self):
        self.gpu.host += POLL
        self.at = max(self.gpu.host, self.gpu.free)

    def query(self):
        self.gpu.host += POLL
        return self.gpu.host >= self.at

    def elapsed_time(self, end):
        assert end.query(), "read before it was reached"
        assert self.query(), "read before it was reached"
        return round((end.at - self.at) / RESOLUTION) * RESOLUTION * 1000
