"""What such a step does, in order: items on lanes, as `costmodel.copy_streams` prices them."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from trainplan.costmodel.copy_streams import STATE_BYTES, Item, Lane, Part, Work

SLOTS = 2
"""Buffers of weights and gradients: one is filled while the other is used."""
STATE_SLOTS = 3
"""Buffers of states: one is read, one updated, one written."""
MATRICES = 2
"""Square ones of a layer, with a nonlinearity between."""
KINDS = ("read", "copy_in", "forward", "backward", "copy_out", "read_states", "adam", "write")
"""Sorts of items; only a GPU has copies."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The model and its batch."""

    layers: int
    width: int
    tokens: int
    weight_bytes: int
    """Of one weight as products take it."""
    on_gpu: bool = False

    @property
    def params(self) -> int:
        """Of one layer."""
        return MATRICES * self.width**2

    @property
    def layer_bytes(self) -> int:
        """Weights of one layer as products take them."""
        return self.params * self.weight_bytes

    @property
    def state_bytes(self) -> int:
        """States of one layer."""
        return self.params * STATE_BYTES

    @property
    def read_bytes(self) -> int:
        """Read in a step: weights for both passes, states for the update.

        Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857: each pass fetches weights anew.
        """
        return self.layers * (2 * self.layer_bytes + self.state_bytes)

    @property
    def written_bytes(self) -> int:
        """Written in a step: states and the weights that follow from them."""
        return self.layers * (self.layer_bytes + self.state_bytes)

    def layer_of(self, visit: int) -> int:
        """Layer of a pass: forward through all of them, then backward."""
        return visit if visit < self.layers else 2 * self.layers - 1 - visit


def program(sizes: Sizes, seconds: Mapping[str, float]) -> Work:
    """A step as items, each as long as its sort is.

    Source: derived; what is read lies in one of a few buffers until it was used or written; passes
    and updates go from layer to layer; the last layer, whose gradient is there first, is first.
    """
    items = [*_passes(sizes, seconds), *_updates(sizes, seconds)]
    return Work((Part(tuple(items)),))


def _passes(sizes: Sizes, seconds: Mapping[str, float]) -> Iterator[Item]:
    lane = Lane.GPU if sizes.on_gpu else Lane.CPU
    for visit in range(2 * sizes.layers):
        back = visit >= sizes.layers
        sort, before = ("backward" if back else "forward"), visit - SLOTS
        user = "backward" if before >= sizes.layers else "forward"
        if not sizes.on_gpu:
            yield _item("read", visit, Lane.DRIVE_READ, seconds, (user, before))
            yield _item(sort, visit, lane, seconds, ("read", visit))
            continue
        yield _item("read", visit, Lane.DRIVE_READ, seconds, ("copy_in", before))
        yield _item("copy_in", visit, Lane.H2D, seconds, ("read", visit), (user, before))
        out = before if before >= sizes.layers else -1
        yield _item(sort, visit, lane, seconds, ("copy_in", visit), ("copy_out", out))
        if back:
            yield _item("copy_out", visit, Lane.D2H, seconds, (sort, visit))


def _updates(sizes: Sizes, seconds: Mapping[str, float]) -> Iterator[Item]:
    gradient = "copy_out" if sizes.on_gpu else "backward"
    for turn in range(sizes.layers):
        visit, before = sizes.layers + turn, turn - STATE_SLOTS
        yield _item("read_states", turn, Lane.DRIVE_READ, seconds, ("write", before))
        after = ("read_states", turn), (gradient, visit)
        yield _item("adam", turn, Lane.CPU, seconds, *after)
        yield _item("write", turn, Lane.DRIVE_WRITE, seconds, ("adam", turn))


def _item(
    sort: str, number: int, lane: Lane, seconds: Mapping[str, float], *after: tuple[str, int]
) -> Item:
    names = tuple(f"{name} {which}" for name, which in after if which >= 0)
    return Item(f"{sort} {number}", lane, seconds.get(sort, 0.0), names)


@contextmanager
def threads_of(
    work: Work, begin: Callable[[], object]
) -> Iterator[Mapping[Lane, ThreadPoolExecutor]]:
    """A thread for every lane that has work; `begin` prepares it."""
    with ExitStack() as stack:
        yield {
            lane: stack.enter_context(ThreadPoolExecutor(1, f"lane-{lane.name}", begin))
            for lane in {item.lane for part in work.parts for item in part.items}
        }


def run(
    work: Work,
    calls: Mapping[str, Callable[[int], object]],
    threads: Mapping[Lane, ThreadPoolExecutor],
) -> None:
    """Do the items of a step for real: the thread of each lane in the order of the program.

    `calls` does an item of a sort, given its number.

    Raises:
        Exception: The first that an item raised; what waits for it is not done.
    """
    done: dict[str, Future[object]] = {}
    for item in work.parts[0].items:
        sort, number = item.name.rsplit(" ", 1)
        waits = [done[name] for name in item.after]
        call = partial(_after, waits, partial(calls[sort], int(number)))
        done[item.name] = threads[item.lane].submit(call)
    wait(done.values())
    for future in done.values():
        future.result()


def _after(waits: list[Future[object]], call: Callable[[], object]) -> object:
    for one in waits:
        one.result()
    return call()
