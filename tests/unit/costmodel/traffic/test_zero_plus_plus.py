"""ZeRO++: a second copy of the weights, and weights and gradients in fewer bits on their way."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.hardware.cluster import NicSpec
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import RankParams
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.sharded import Unit, sharded_traffic
from trainplan.planner.plan.changes_training import changes_training

RANKS, NODE, PARAMS = 64, 8, 1e9
PLAIN = Layout(dp=RANKS, zero_stage=3)
COPIED = PLAIN.model_copy(update={"hpz": NODE})
BOTH = {"weight_bits": 8, "gradient_bits": 4}


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(batch=RANKS, precision="fp16", **options):
        made = make_job("llama2-7b", "8x8:h100-sxm", batch, 4096, precision=precision)
        changed = {"runtime": "deepspeed", "options": RuntimeOptions(**options)}
        return made.model_copy(update=changed)

    return job


def candidates_of(job, *layouts, **sharding):
    found = context_of(job, machine_of(job.cluster, job.training.precision))
    changed = replace(found.traits.sharding, **sharding)
    return replace(
        found.with_table(LayoutTable.of(layouts)), traits=replace(found.traits, sharding=changed)
    )


def layer_of(job, layout, **named):
    unit = Unit(RankParams(np.full(1, PARAMS), np.zeros(1)))
    return sharded_traffic(candidates_of(job, layout), [unit], **named)[0]


def seconds_of(job, operation, tensor_bytes, ranks, stride=1):
    machine = machine_of(job.cluster, job.training.precision)
    links = group(machine, np.array([ranks]), np.array([stride]))
    return float(collective_seconds(machine, operation, np.array([tensor_bytes]), links)[0])


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_off_is_the_price_without_it_to_the_bit(job_of, stage):
    """An engine that knows nothing of it, and rows beside one that has it."""
    layout = Layout(dp=RANKS, zero_stage=stage)
    for job in (job_of(), job_of(4 * RANKS, "bf16")):
        alone, among, lacking = (
            price(candidates_of(job, layout)),
            price(candidates_of(job, layout, COPIED)),
            price(candidates_of(job, layout, zero_plus_plus=False)),
        )
        for one in (among, lacking):
            assert one.step_seconds[0] == alone.step_seconds[0]
            assert one.memory.reserved[:, 0].tolist() == alone.memory.reserved[:, 0].tolist()


def test_a_second_copy_is_kept_beside_the_first(job_of):
    job = job_of()
    plain, copied = (price(candidates_of(job, one)).memory for one in (PLAIN, COPIED))
    more = copied.weights.max() - plain.weights.max()
    assert more == pytest.approx(2 * num_parameters(job.model) / NODE)
    assert copied.optimizer.max() == plain.optimizer.max()


def test_the_first_forward_pass_of_a_step_gathers_from_all_and_all_others_from_the_node(job_of):
    job = job_of()
    first, later = layer_of(job, COPIED), layer_of(job, COPIED, later=True)
    far, near = (seconds_of(job, "all_gather", 2 * PARAMS, ranks) for ranks in (RANKS, NODE))
    scattered = seconds_of(job, "reduce_scatter", 2 * PARAMS, RANKS)
    assert first.forward == pytest.approx(far, rel=0.02)
    assert later.forward == pytest.approx(near, rel=0.02)
    for one in (first, later):
        assert one.backward == pytest.approx(near + scattered, rel=0.02)


def test_a_step_of_several_micro_batches_has_one_first_pass(job_of):
    """What m micro batches add to a step of one, m - 1 times, but for the traffic of the first."""
    steps = [
        float(price(candidates_of(job_of(m * RANKS), COPIED)).work.forward[0, 0]) for m in (1, 2, 4)
    ]
    exposed = 2 * (steps[0] - steps[1])
    assert exposed > 0
    assert steps[0] - steps[2] == pytest.approx(exposed * 3 / 4)


def test_weights_are_half_as_many_bytes_and_are_made_16_bits_before_they_are_used(job_of):
    job, low = job_of(), job_of(weight_bits=8)
    plain, half = layer_of(job, PLAIN), layer_of(low, PLAIN)
    machine = machine_of(job.cluster, "fp16")
    made = 3 * PARAMS / streaming_bytes_per_second(machine)
    assert half.forward_alone - plain.forward_alone == pytest.approx(made)
    assert half.forward == pytest.approx(plain.forward / 2, rel=0.1)
    wide = layer_of(job_of(weight_bits=8, precision="bf16"), PLAIN)
    assert wide.forward_alone == pytest.approx(7 / 3 * made), "the kernel has fp16 alone"


def test_gradients_go_in_two_exchanges_of_four_bits(job_of):
    job = job_of(gradient_bits=4)
    found, plain = layer_of(job, PLAIN), layer_of(job_of(), PLAIN)
    local = seconds_of(job, "alltoall", PARAMS / 2, NODE)
    across = seconds_of(job, "alltoall", PARAMS / 2 / NODE, RANKS // NODE, NODE)
    gathered = seconds_of(job, "all_gather", 2 * PARAMS, RANKS)
    part = 0.5 + 0.5 + 4 + 2 * NODE / RANKS
    moved = (
        (3.0 + part / NODE) * PARAMS / streaming_bytes_per_second(machine_of(job.cluster, "fp16"))
    )
    assert found.backward == pytest.approx(gathered + local + across + moved, rel=0.02)
    assert found.backward < plain.backward
    assert found.forward == plain.forward


def test_gradients_of_one_node_are_scattered_as_they_are(make_job):
    job = make_job("llama2-7b", "1x8:h100-sxm", 8, 4096, precision="fp16")
    job = job.model_copy(update={"runtime": "deepspeed"})
    low = job.model_copy(update={"options": RuntimeOptions(gradient_bits=4)})
    layout = Layout(dp=8, zero_stage=3)
    plain, quantised = layer_of(job, layout), layer_of(low, layout)
    assert quantised.backward == pytest.approx(plain.backward, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"weight_bits": 8}, {"gradient_bits": 4}, BOTH])
@pytest.mark.parametrize("layout", [PLAIN, COPIED])
def test_a_slower_network_never_makes_a_step_shorter(job_of, options, layout):
    job = job_of(2 * RANKS, **options)
    (group_,) = job.cluster.groups
    steps = []
    for gb_per_s in (100.0, 50.0, 12.5, 3.0, 0.5):
        nic = NicSpec(per_node=NODE, gb_per_s=gb_per_s)
        nodes = job.cluster.model_copy(update={"groups": (group_.model_copy(update={"nic": nic}),)})
        on = candidates_of(job.model_copy(update={"cluster": nodes}), layout)
        steps.append(float(price(on).step_seconds[0]))
    assert steps == sorted(steps)
    assert steps[-1] > 2 * steps[0]


def test_what_is_rounded_changes_the_training_and_a_second_copy_does_not(job_of):
    assert changes_training(job_of()) == ()
    assert [one.name for one in changes_training(job_of(**BOTH))] == [
        "weights in 8 bits",
        "gradients in 4 bits",
    ]
