"""What gathers and reductions of a step hide behind, against hand-made sums."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates, context_of
from trainplan.costmodel.comm import group
from trainplan.costmodel.comm.collectives import collective_rate
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import rank_params
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.data_parallel import reduction_overlap, step_traffic


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(runtime="megatron-lm", cluster="8x8:h100-sxm", precision="bf16", **options):
        made = make_job("llama3-8b", cluster, 512, 4096, precision=precision)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


def priced_of(job, traits=None, **layout):
    """The layout priced rank by rank, and its traffic on the wire."""
    traits = traits or traits_of(job)
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([Layout(zero_stage=1, **layout)])
    candidates = Candidates(job, machine, traits, table)
    priced = price(candidates, merged=False)
    return priced, step_traffic(candidates, rank_params(priced.ranks, priced.params))


@pytest.mark.parametrize("vpp", [2, 4])
def test_the_first_virtual_stage_of_a_rank_hides_neither_its_gradients_nor_its_weights(job_of, vpp):
    """Its gradients go when all passes have ended, its weights are there before any begins.

    The other stages hide theirs, which slows their passes by a share of it.
    """
    priced, wire = priced_of(job_of(), pp=4, dp=16, vpp=vpp, schedule="interleaved")
    slowed = priced.machine.constants.overlap_contention * (1 - 1 / vpp)
    assert priced.traffic == pytest.approx((wire.reduce + wire.gather) * (1 / vpp + slowed))


def test_every_virtual_stage_of_a_rank_is_a_call_of_its_own(job_of):
    """In small networks starts are all that a step of many stages sends more."""
    whole, parts = (
        priced_of(job_of(), pp=4, dp=16, vpp=vpp, schedule="interleaved")[1] for vpp in (2, 4)
    )
    machine = machine_of(job_of().cluster, "bf16")
    links = group(machine, np.array([16]), np.array([1]))
    for name, seconds in (("reduce_scatter", "reduce"), ("all_gather", "gather")):
        start = collective_rate(machine, name, links).start_seconds
        added = getattr(parts, seconds) - getattr(whole, seconds)
        assert added == pytest.approx(np.broadcast_to(2 * start, added.shape), rel=1e-3)


@pytest.mark.parametrize(("pp", "vpp"), [(4, 3), (2, 2), (8, 2)])
def test_virtual_stages_hide_what_fits_between_two_of_them(job_of, pp, vpp):
    """Stages of 4 s, `pp` passes of 0.5 s apart: each is sent when the one before it has been.

    What outlasts the passes is on top, and a share of what they hide.
    """
    chunk, job = 0.5, job_of()
    layout = Layout(pp=pp, vpp=vpp, dp=64 // pp, zero_stage=1, schedule="interleaved")
    machine = machine_of(job.cluster, "bf16")
    hiding = reduction_overlap(context_of(job, machine).with_table(LayoutTable.of([layout])))
    between = pp * chunk
    end = 0.0
    for stage in range(vpp):
        end = max(end, stage * between) + 4.0
    late = end - (vpp - 1) * between
    slowed = machine.constants.overlap_contention * (4.0 * vpp - late)
    assert hiding.exposed(np.array([4.0 * vpp]), np.array([vpp * chunk])) == pytest.approx(
        late + slowed
    )


def test_without_virtual_stages_a_pipeline_gathers_once_where_it_is_exported_so(job_of):
    job = job_of()
    priced, wire = priced_of(job, pp=4, dp=16)
    traits = traits_of(job)
    alone = replace(traits, sharding=replace(traits.sharding, overlaps_parameters=False))
    alongside, _ = priced_of(job, alone, pp=4, dp=16)
    assert (priced.traffic >= wire.gather).all()
    assert priced.traffic == pytest.approx(alongside.traffic)


@pytest.mark.parametrize(
    "job", [{"runtime": "megatron-bridge"}, {"overlap_param_gather": True}, {"runtime": "nemo"}]
)
def test_ranks_that_gather_when_the_first_micro_batch_comes_wait_for_each_other(job_of, job):
    """Each further rank of the pipeline adds its gather; with one rank nearly all is hidden."""
    waits, wire = priced_of(job_of(**job), pp=4, dp=16)
    alone, whole = priced_of(job_of(**job), dp=64)
    assert (waits.traffic >= 3 * wire.gather).all()
    most = 0.1 + alone.machine.constants.overlap_contention
    assert (alone.traffic < most * (whole.gather + whole.reduce)).all()


@pytest.mark.parametrize(
    ("runtime", "precision", "share"),
    [
        ("megatron-bridge", "fp8", 0.5),
        ("nemo", "fp8", 0.5),
        ("megatron-bridge", "mxfp8", 1.0),  # gathered in 16 bits, then cast
        ("megatron-lm", "fp8", 1.0),  # weights in 16 bits beside their copies
    ],
)
def test_weights_that_exist_in_fp8_only_are_gathered_in_it(job_of, runtime, precision, share):
    cluster = "8x8:b200" if precision == "mxfp8" else "8x8:h100-sxm"
    low, half = (
        priced_of(job_of(runtime, cluster, one), dp=64)[1].gather[0, 0]
        for one in (precision, "bf16")
    )
    assert low / half == pytest.approx(share, rel=0.05)
