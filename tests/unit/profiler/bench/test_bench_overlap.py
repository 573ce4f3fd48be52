"""What runs beside products, and how much of it."""

import pytest

from trainplan.profiler.bench.overlap import COVER, OPERATIONS, SIZES, counts, overlap_tasks
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.task import Place

ONE_GPU, GPUS = Place("cuda", 0, 1, 0, 1), Place("cuda", 1, 3, 1, 3)


@pytest.mark.parametrize(("compute", "communication"), [(1e-3, 1e-4), (2e-4, 7e-4), (1e-4, 0.1)])
def test_on_a_gpu_products_are_many_and_messages_cover_them(compute: float, communication: float):
    found = counts("cuda", compute, communication)
    assert found.products >= 8
    assert found.messages * communication >= COVER * found.products * compute
    assert found.covering * compute >= COVER * communication


def test_on_a_cpu_one_product_is_enough():
    assert counts("cpu", 1e-3, 1e-3).products == 1


def keys(place, *, quick=False):
    tasks = list(overlap_tasks(request_for(None, place.device, 8, quick=quick), place))
    assert all(task.together for task in tasks)
    return [task.key for task in tasks]


def test_collectives_messages_and_copies_run_beside_products():
    copies = [f"{way} bytes={SIZES['cuda'][0]}" for way in ("host_to_device", "device_to_host")]
    every = [f"{name} bytes={size}" for size in SIZES["cuda"] for name in OPERATIONS]
    assert keys(GPUS) == [*every, *copies]
    assert {"alltoall", "p2p"} < set(OPERATIONS)
    assert keys(GPUS, quick=True) == [*every[: len(OPERATIONS)], *copies]
    assert keys(ONE_GPU) == copies, "which need no other rank"
    assert not keys(Place("cpu", 0, 1, 0, 1))


torch = pytest.importorskip("torch", reason="what runs is torch's")
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from trainplan.profiler import torch_on_use  # noqa: E402
from trainplan.profiler.bench.overlap import _pair  # noqa: E402

SIZE = 3 * 2**10


@pytest.fixture
def three_ranks():
    """Rank 1 of three, whose collectives end at once."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
    yield Place("cpu", 1, 3, 1, 3)
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")  # renamed in torch 2.13
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_starts_and_is_waited_for(three_ranks, operation):
    pair = _pair(operation, SIZE, three_ranks)
    assert len(pair.start()) == (2 if operation == "p2p" else 1)
    pair.communicate()


def test_every_rank_sends_to_the_next_and_receives_from_the_one_before(three_ranks, monkeypatch):
    seen = []
    monkeypatch.setattr(torch_on_use.dist, "batch_isend_irecv", lambda ops: seen.extend(ops) or ())
    _pair("p2p", SIZE, three_ranks).communicate()
    dist = torch.distributed
    assert [(one.op, one.peer) for one in seen] == [(dist.isend, 2), (dist.irecv, 0)]
    assert all(one.tensor.nbytes == SIZE for one in seen)


@pytest.mark.parametrize("way", ["host_to_device", "device_to_host"])
def test_copies_do_not_wait(monkeypatch, way):
    """From pinned memory or to it, and what starts them waits for nothing."""
    pinned, copied, real, copy = [], [], torch.empty, torch.Tensor.copy_

    def empty(*size, pin_memory=False, **more):
        made = real(*size, **more)
        pinned.extend([made] * pin_memory)
        return made

    def seen(target, source, *, non_blocking=False):
        copied.append((target, source, non_blocking))
        return copy(target, source)

    monkeypatch.setattr(torch_on_use.torch, "empty", empty)
    pair = _pair(way, SIZE, Place("cpu", 0, 1, 0, 1))
    monkeypatch.setattr(torch.Tensor, "copy_", seen)
    assert pair.start() == ()
    ((*ends, at_once),) = copied
    assert at_once
    assert ends[way == "host_to_device"] is pinned[0]
