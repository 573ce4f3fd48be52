"""Buffers that the stages of torch's pipelining receive into, counted on the stages themselves."""

from dataclasses import replace

import numpy as np
import pytest

from tests.torch_requests import TINY
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.pipeline import ranks_of
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES, torch_class
from trainplan.costmodel.step import price

torch = pytest.importorskip("torch", "2.13", reason="stages need torch: run `make oracles`")
dist = torch.distributed
schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
PipelineStage = pytest.importorskip("torch.distributed.pipelining").PipelineStage
FakeStore = pytest.importorskip("torch.testing._internal.distributed.fake_pg").FakeStore

pytestmark = pytest.mark.oracle
MICRO_BATCHES, TOKENS, WIDTH = 8, 4, 8
LAYOUTS = (
    Layout(pp=2),
    Layout(pp=4),
    Layout(pp=2, schedule="gpipe"),
    Layout(pp=2, vpp=2, schedule="interleaved"),
    Layout(pp=4, vpp=3, schedule="interleaved"),
    Layout(pp=2, vpp=2, schedule="breadth-first"),
    Layout(pp=2, vpp=2, schedule="zb-h1"),
    Layout(pp=4, vpp=2, schedule="zb-h1"),
    Layout(pp=2, vpp=2, schedule="zb-v"),
)


class Block(torch.nn.Module):
    """Two layers with a sum behind them: torch splits no backward pass that ends in a view."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


def counted(layout, rank):
    """Buffers of a micro batch that the stages of a rank hold after a step, and gradients."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=layout.pp)
    try:
        return counted_in_group(layout, rank)
    finally:
        dist.destroy_process_group()


def counted_in_group(layout, rank):
    mine = placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)[rank].tolist()
    number = layout.pp * layout.vpp
    like = torch.empty(1, TOKENS, WIDTH, device="meta", requires_grad=True)
    stages = [
        PipelineStage(
            Block(),
            stage,
            number,
            torch.device("cpu"),
            input_args=like,
            output_args=like,
            group=dist.group.WORLD,
        )
        for stage in mine
    ]
    kind = getattr(schedules, f"Schedule{torch_class(layout)}")
    several = issubclass(kind, schedules.PipelineScheduleMulti)
    schedule = kind(
        stages if several else stages[0],
        MICRO_BATCHES,
        loss_fn=lambda out, wanted: (out - wanted).square().mean(),
        scale_grads=False,
    )
    whole = torch.randn(MICRO_BATCHES, TOKENS, WIDTH)
    schedule.step(
        *((whole,) if 0 in mine else ()), target=whole if number - 1 in mine else None, losses=[]
    )
    infos = [
        info
        for stage in stages
        for received in (stage.args_recv_info, stage.grad_recv_info)
        for some in received.values()
        for info in some
        if info.buffer is not None
    ]
    buffers = [info.buffer for info in infos]
    kept = [one.grad for one in buffers if one.grad is not None]
    return len({one.untyped_storage().data_ptr() for one in (*buffers, *kept)})


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda one: f"{one.schedule} {one.pp}x{one.vpp}")
def test_every_stage_has_a_buffer_for_every_micro_batch(layout, monkeypatch):
    # Torch 2.13 asks all ranks whether they know their shapes, and no other rank is there.
    yes = torch.ones(1, dtype=torch.int32)
    monkeypatch.setattr(
        PipelineStage, "_warmup_backward_result", lambda *known, **named: yes, raising=False
    )
    model = TINY.model_copy(update={"num_hidden_layers": 12})
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=32, global_batch_size=MICRO_BATCHES),
        cluster=parse_cluster(f"1x{layout.pp}:h100-sxm"),
        runtime="torchtitan",
    )
    table = LayoutTable.of([layout])
    context = context_of(job, machine_of(job.cluster, "bf16"))
    without = replace(context, traits=replace(context.traits, family=""))
    ours, none = (
        price(one.with_table(table), merged=False).memory.transients[:, 0]
        for one in (context, without)
    )
    held = ranks_of(job, table, merged=False).received_held[:, 0]
    one = 2 * 32 * model.hidden_size
    predicted = (ours - none) / one + held
    for rank in range(layout.pp):
        turn = layout.schedule == "zb-v" and rank == layout.pp - 1
        shared = MICRO_BATCHES if turn else 0  # gradients of one stage are those of the next
        assert np.isclose(predicted[rank], counted(layout, rank) + shared), rank
