"""Peak of torch's attention over context ranks, backward: formula against its own code."""

import pytest

from tests.oracles.live_bytes import LiveBytes
from tests.oracles.shapes import SMALL
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.transients import ring_columns

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
ring = pytest.importorskip("torch.distributed.tensor.experimental._context_parallel._attention")
stores = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
from torch import distributed  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

pytestmark = pytest.mark.oracle
TOKENS = 1024


class AwaitedInPlace(LiveBytes):
    """A collective that was waited for is the same tensor, not a new one as on fake tensors."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function == torch.ops._c10d_functional.wait_tensor.default:
            return args[0]
        return super().__torch_dispatch__(function, types, args, kwargs)


@pytest.fixture(params=[2, 4, 8, 16], ids="cp={}".format)
def cp(request, monkeypatch):
    """The last of so many ranks, which exchange nothing."""
    options = ring._cp_options
    monkeypatch.setattr(options, "rotate_method", ring._RotateMethod.ALL_GATHER)
    monkeypatch.setattr(options, "enable_load_balance", True)
    store, size = stores.FakeStore(), request.param
    distributed.init_process_group("fake", rank=size - 1, world_size=size, store=store)
    yield size
    distributed.destroy_process_group()


def gradients(query, key, value, **others):
    """What the kernel of one step returns."""
    return tuple(map(torch.empty_like, (query, key, value)))


def ring_bytes():
    """Most that is alive in the backward pass beside what it was given."""
    shape = (1, SMALL.num_attention_heads, TOKENS, SMALL.head_dim)
    with FakeTensorMode(), AwaitedInPlace() as live:
        given = [torch.empty(shape, dtype=torch.bfloat16) for _ in range(5)]
        sums = torch.empty(shape[:-1], dtype=torch.float32)
        world, (query, key, value, out, gradient) = distributed.group.WORLD, given
        live.restart()
        before = live.now
        ring._templated_ring_attention_backward(
            world, 2, gradients, gradient, "grad_out", query, key, value, out, sums, is_causal=True
        )
        return live.peak - before


def test_attention_over_context_ranks_takes_what_the_formula_says(cp):
    training = TrainingSpec(seq_length=TOKENS * cp, global_batch_size=1)
    cluster = parse_cluster(f"1x{cp}:h100-sxm")
    job = Job(model=SMALL, training=training, cluster=cluster, runtime="torchtitan")
    table = LayoutTable.of([Layout(cp=cp, zero_stage=3)])
    columns = ring_columns(context_of(job, machine_for(job)).with_table(table))[0]
    assert ring_bytes() == training.storage_bytes * TOKENS * columns
