"""Bytes a caching allocator takes from the device for tensors that come and go."""

from tests.oracles.live_bytes import LiveBytes

BLOCK = 512
"""Every size is a multiple. Source: pytorch `c10/cuda/CUDACachingAllocator.cpp`, kMinBlockSize."""


class BestFit:
    """One range of addresses that grows at its end (expandable segments).

    The smallest hole that is large enough is taken, of equal ones the first; where there is none
    the range grows, a hole at its end included.
    Source: pytorch `c10/cuda/CUDACachingAllocator.cpp`, get_free_block and free_block.
    """

    def __init__(self):
        self.reserved = 0
        self._holes = {}

    def take(self, size):
        """Where the new block begins."""
        fitting = [(room, start) for start, room in self._holes.items() if room >= size]
        if fitting:
            room, start = min(fitting)
        else:
            start, room = self._end(), size
            self.reserved = start + size
        self._holes.pop(start, None)
        if room > size:
            self._holes[start + size] = room - size
        return start

    def give_back(self, start, size):
        """The block is a hole again, one with its neighbours."""
        self._holes[start] = size
        joined = {}
        for begin in sorted(self._holes):
            last = next(reversed(joined), None)
            if last is not None and last + joined[last] == begin:
                joined[last] += self._holes[begin]
            else:
                joined[begin] = self._holes[begin]
        self._holes = joined

    def _end(self):
        """Where the last block in use ends."""
        ends = (s for s, room in self._holes.items() if s + room == self.reserved)
        return next(ends, self.reserved)


class ReservedBytes(LiveBytes):
    """Counts what is alive, and what an allocator reserves for it."""

    def __init__(self):
        super().__init__()
        self.allocator = BestFit()

    def appeared(self, size):
        """A tensor was made; what to do when it is gone."""
        room = -(-size // BLOCK) * BLOCK
        start = self.allocator.take(room)
        return lambda: self.allocator.give_back(start, room)
