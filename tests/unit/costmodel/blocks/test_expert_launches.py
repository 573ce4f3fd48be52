"""What the host launches of layers with experts, and how long the GPU waits for it."""

import numpy as np
import pytest

from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.host import Launches, layer_launches
from trainplan.costmodel.blocks.parts import Module, pass_seconds, shapes
from trainplan.costmodel.blocks.rows import Copies, selective
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.catalog import release_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable


@pytest.fixture(name="launches")
def of_a_layer(make_job):
    """Of a layer under some options; `model` changes it."""
    plain = make_job("small-moe", "1x8:h100-sxm").model_copy(update={"runtime": "megatron-bridge"})

    def launches(model=None, moe=None, release=None, tp=1, **options):
        layer = {"feed_forward": "moe", "mixer": "full_attention"}
        changed = plain.model.model_copy(update={**layer, **(model or {})})
        alone = {"shared_expert_intermediate_size": 0}
        experts = changed.moe.model_copy(update=alone | (moe or {}))
        changed = changed.model_copy(update={"moe": experts})
        stated = {"release": release, "options": RuntimeOptions(**options)}
        job = plain.model_copy(update={"model": changed, **stated})
        table = LayoutTable.of([Layout(tp=tp, ep=8 // tp, dp=8 // tp)])
        candidates = context_of(job, machine_for(job)).with_table(table)
        return layer_launches(shapes(candidates)), candidates.machine.constants

    return launches


@pytest.mark.parametrize("release", ["26.02", "26.08"])
def test_an_overlapped_exchange_costs_the_host_the_factor_of_the_release(launches, release):
    plain, constants = launches(release=release)
    alongside, _ = launches(release=release, overlap_moe_a2a=True)
    software = release_of(release)
    assert software.overlapped > 1
    assert plain.forward_seconds == pytest.approx(software.experts * constants.host_moe)
    assert alongside.forward_seconds == pytest.approx(software.overlapped * plain.forward_seconds)
    assert alongside.backward_seconds == pytest.approx(software.overlapped * plain.backward_seconds)
    assert alongside.sync_seconds == pytest.approx(software.overlapped * plain.sync_seconds)


def test_a_graph_of_the_step_leaves_nothing_to_launch_whatever_runs_beside(launches):
    found, _ = launches(cuda_graph="full_iteration", overlap_moe_a2a=True)
    assert (found.forward_seconds, found.backward_seconds, found.sync_seconds) == (0, 0, 0)


def test_a_wait_for_sizes_lasts_as_long_as_what_is_launched_after_it(launches):
    """`dispatch_sync_seconds` is that of an eager layer; no graph holds what follows the wait."""
    found, constants = launches()
    graphed, _ = launches(cuda_graph="partial")
    share = found.forward_seconds / constants.host_moe
    assert found.sync_seconds == pytest.approx(share * constants.dispatch_sync_seconds)
    assert graphed.sync_seconds == pytest.approx(found.sync_seconds)
    assert graphed.forward_seconds < found.forward_seconds


@pytest.mark.parametrize(
    ("moe", "share"), [({"shared_expert_intermediate_size": 512}, 0.5), ({"latent_size": 64}, 0.4)]
)
def test_shared_experts_and_projections_launch_their_share_of_a_dense_layer(launches, moe, share):
    without, constants = launches()
    more = launches(moe=moe)[0].forward_seconds - without.forward_seconds
    assert more == pytest.approx(release_of(None).experts * share * constants.host_dense)


@pytest.mark.parametrize(("options", "times"), [({}, 1), ({"cuda_graph": "partial"}, 0)])
def test_tensor_parallelism_launches_collectives_that_no_graph_holds(launches, options, times):
    found, constants = launches(tp=2, **options)
    more = found.forward_seconds - launches(**options)[0].forward_seconds
    assert more == pytest.approx(times * release_of(None).experts * constants.host_tp)


@pytest.mark.parametrize(
    ("busy", "names", "added"),
    [
        (1.0, ("core_attn",), 0.1),
        (0.0, ("core_attn",), 0.4),
        (0.7, ("core_attn",), 0.2),
        (1.0, ("core_attn", "layernorm"), 0.55),
    ],
)
def test_recomputed_modules_cost_what_the_slower_of_host_and_gpu_adds(busy, names, added):
    """0.1 s of the GPU each, against checkpoints of 0.3 s and 0.1 or 0.05 s of launches: one of
    attention, two of the norms, of which a GPU that is 0.5 s behind the host hides the last.
    """
    host = Launches(np.zeros(1), np.full(1, 0.5), 0.0, 0.3, 0.5)
    none, zero = pass_seconds(1), np.zeros(1)
    modules = tuple(host.launching(Module(name, np.full(1, 0.1), zero)) for name in names)
    block = Block(
        none,
        none,
        zero,
        saved_bytes=zero,
        modules=modules,
        recompute_forward=none,
        host_ahead=host.ahead(np.full(1, busy)),
    )
    layout = Layout(recompute="selective", recompute_modules=names)
    copies = Copies(zero, zero)
    found = selective(block, np.zeros(1, int), LayoutTable.of([layout]), copies)
    assert found.seconds == pytest.approx(added)


def test_experts_alone_launch_less_unless_a_graph_holds_the_attention(launches):
    alone, half = {"mixer": "none"}, {"cuda_graph": "partial"}
    assert launches(alone, **half)[0].forward_seconds == launches(**half)[0].forward_seconds
    assert launches(alone)[0].forward_seconds < launches()[0].forward_seconds
