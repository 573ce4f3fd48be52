"""What an outer step sends and takes, against the formulas and figures of its papers."""

import numpy as np
import pytest

from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.hardware.cluster import BetweenGroups, ClusterSpec, LinkSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.outer.islands import island_count, island_job
from trainplan.costmodel.outer.of_job import state_bytes_per_param, sync_of
from trainplan.costmodel.outer.outer_step import (
    exposed_seconds,
    fewer_bytes,
    fewest_steps,
    sent_bytes,
    sync_seconds,
    utilisation,
)
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.step.estimate import local_seconds, with_overhead, without_overhead

SLOW = 0.125


def spec(**fields):
    return OuterSpec(**{"islands": 2, "every": 100, "gb_per_s": SLOW, **fields})


def islands(text="1x8:h100-sxm+1x8:h100-sxm", **between):
    cluster = parse_cluster(text)
    joined = BetweenGroups(**{"gb_per_s": SLOW, **between})
    return ClusterSpec(name=cluster.name, groups=cluster.groups, between_groups=joined)


def job(cluster, batch=256):
    return Job(
        model=preset("llama3-8b"),
        training=TrainingSpec(seq_length=4096, global_batch_size=batch),
        cluster=cluster,
        runtime="torchtitan",
    )


def test_diloco_sends_five_hundred_times_fewer_bytes():
    """arXiv:2311.08105, abstract: once in 500 steps; derived, so exact."""
    assert fewer_bytes(spec(), 500) == 500


def test_intellect_sends_four_hundred_times_fewer_bytes():
    """arXiv:2412.01152, section 2.1: 100 steps and int8 in place of fp32; derived, so exact."""
    assert fewer_bytes(spec(dtype="int8"), 100) == 400


@pytest.mark.parametrize(("sync_s", "share"), [(103, 0.957), (382, 0.856), (469, 0.829)])
def test_intellect_utilisations(sync_s, share):
    """38 minutes of local steps and one sync of those seconds: 95.7, 85.6 and 82.9 %.

    arXiv:2412.01152, table of its runs; tolerance: the last digit that is published.
    """
    assert utilisation(sync_s, 22.8, spec(), 100) == pytest.approx(share, abs=5e-4)


@pytest.mark.parametrize("overlap", ["none", 3, "eager"])
@pytest.mark.parametrize("fragments", [1, 4])
def test_the_fewest_steps_reach_the_share_and_one_less_does_not(overlap, fragments):
    outer = spec(overlap=overlap, fragments=fragments)
    for sync_s, step_s in ((469.0, 22.8), (10.0, 3.0), (0.5, 7.0)):
        steps = fewest_steps(sync_s, step_s, outer)
        assert steps % fragments == 0
        assert utilisation(sync_s, step_s, outer, steps) >= 0.95 - 1e-9
        fewer, least = steps - fragments, fragments * (overlap + 1 if overlap == 3 else 1)
        if fewer >= least:
            assert utilisation(sync_s, step_s, outer, fewer) < 0.95


def test_eager_updates_and_co2_wait_for_nothing_from_enough_steps_on():
    """arXiv:2502.12996 and arXiv:2401.16265: a sync behind all of the next round of local steps."""
    outer, sync_s, step_s = spec(overlap="eager"), 100.0, 3.0
    enough = 34
    waits = [exposed_seconds(sync_s, step_s, outer, steps) for steps in range(1, 60)]
    assert all(wait > 0 for wait in waits[: enough - 1])
    assert waits[enough - 1 :] == [0.0] * (60 - enough)


def test_streaming_hides_each_fragment_behind_its_own_steps():
    """arXiv:2501.18512: four fragments, each over two steps, hide eight steps of a round."""
    outer = spec(overlap=2, fragments=4, every=40)
    assert exposed_seconds(10.0, 1.0, outer, 40) == pytest.approx(2.0)


def test_bytes_are_those_of_a_ring_among_islands():
    assert sent_bytes(1e9, spec(islands=4)) == 2 * 3 / 4 * 1e9 * 4
    assert sent_bytes(1e9, spec(islands=4, dtype="int8")) == 2 * 3 / 4 * 1e9


def test_all_nodes_send_at_once_and_messages_wait_in_a_row():
    outer = spec(islands=4, latency_us=50_000)
    found = sync_seconds(1e9, outer, nodes=2, efficiency=0.5)
    assert found == pytest.approx(6e9 / (2 * SLOW * 1e9 * 0.5) + 6 * 0.05)


def parted(whole, **fields):
    return island_job(whole.model_copy(update={"outer": OuterSpec(**fields)}))


def test_an_island_has_its_nodes_its_share_of_the_batch_and_the_link():
    whole = job(islands(latency_us=3.0))
    alone = parted(whole, every=50)
    assert alone.cluster.num_gpus == 8
    assert alone.cluster.between_groups is None
    assert alone.training.global_batch_size == 128
    assert alone.outer == OuterSpec(islands=2, every=50, gb_per_s=SLOW, latency_us=3.0)
    assert (alone.islands, alone.num_gpus) == (2, 16)


def test_nodes_of_one_group_are_islands_where_asked():
    alone = parted(job(parse_cluster("4x8:h100-sxm")), islands=4)
    assert alone.cluster.num_gpus == 8
    assert alone.outer.gb_per_s == pytest.approx(8 * 50)


@pytest.mark.parametrize(
    ("cluster", "batch", "count", "words"),
    [
        ("2x8:h100-sxm", 256, None, "state how many with --islands"),
        ("1x8:h100-sxm+1x8:a100-sxm-80gb", 256, None, "its groups differ"),
        ("1x8:h100-sxm+1x8:a100-sxm-80gb", 256, 2, "differ: islands are equal"),
        ("1x8:h100-sxm+1x8:h100-sxm", 255, None, "does not divide among 2 islands"),
        ("3x8:h100-sxm", 256, 2, "do not make 2 equal islands"),
    ],
)
def test_what_makes_no_islands_is_refused(cluster, batch, count, words):
    with pytest.raises(SpecError, match=words):
        parted(job(parse_cluster(cluster), batch), islands=count)


def test_measured_links_and_adapters_make_no_islands():
    links = LinkSpec(nodes=("a", "b"), gb_per_s=((0, 1), (1, 0)))
    with pytest.raises(SpecError, match="measured links"):
        parted(job(islands().model_copy(update={"links": links})))
    adapted = preset("llama3-8b").model_copy(
        update={"trained": Trained(method="lora", rank=8, modules=("all",))}
    )
    with pytest.raises(SpecError, match="every weight is trained"):
        parted(job(islands()).model_copy(update={"model": adapted}))


def test_a_job_without_islands_or_of_one_is_itself():
    alone = parted(job(islands()))
    assert island_job(alone) is alone
    assert island_job(job(islands())) == job(islands())


def test_unlike_groups_are_no_islands():
    assert island_count(parse_cluster("1x8:h100-sxm+1x8:a100-sxm-80gb")) == 1
    assert island_count(parse_cluster("1x8:h100-sxm+1x8:h100-sxm")) == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fragments": 3}, "does not divide"),
        ({"overlap": 100}, "a sync starts every 100"),
        ({"overlap": 50, "fragments": 2}, "a sync starts every 50"),
        ({"islands": 1}, "greater than or equal to 2"),
        ({"islands": None}, "give that, too"),
    ],
)
def test_rounds_that_do_not_come_out_even_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        spec(**fields)


@pytest.mark.parametrize("overlap", ["none", 7, "eager"])
def test_a_step_bears_its_share_of_the_sync(overlap):
    whole = job(islands())
    alone = parted(whole, every=20, overlap=overlap)
    machine, plain = machine_for(alone), machine_for(alone.model_copy(update={"outer": None}))
    sync_s = sync_of(alone, machine).seconds
    for seconds in (0.1, 2.0, 10.0, 100.0):
        local = float(local_seconds(machine, np.array([seconds]))[0])
        assert local == with_overhead(plain, np.array([seconds]))[0]
        waits = exposed_seconds(sync_s, local, alone.outer, 20) / 20
        step = float(with_overhead(machine, np.array([seconds]))[0])
        assert step == pytest.approx(local + waits)
        back = without_overhead(machine, step * (1 + 1e-9))
        assert back >= seconds * (1 - 1e-9)
        assert with_overhead(machine, np.array([back]))[0] <= step * (1 + 2e-9)


def test_no_sum_of_terms_is_faster_than_the_links():
    alone = parted(job(islands()), every=1, overlap="eager")
    machine = machine_for(alone)
    assert without_overhead(machine, 1.0) == -np.inf
    assert with_overhead(machine, np.array([np.inf]))[0] == np.inf


def test_a_free_number_of_steps_leaves_enough_of_the_time_in_local_ones():
    machine = machine_for(parted(job(islands())))
    seconds = np.array([0.5, 20.0, np.inf])
    local = local_seconds(machine, seconds)
    assert with_overhead(machine, seconds) == pytest.approx(local / 0.95)
    back = without_overhead(machine, float(with_overhead(machine, seconds)[1]))
    assert back == pytest.approx(20.0)


def test_an_outer_optimizer_keeps_its_momentum_and_what_is_on_its_way():
    assert state_bytes_per_param(spec()) == (4, 4)
    assert state_bytes_per_param(spec(overlap="eager")) == (8, 4)
    assert state_bytes_per_param(spec(overlap=1, fragments=4)) == (5, 4)
