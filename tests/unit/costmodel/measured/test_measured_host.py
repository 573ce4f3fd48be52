"""What a profile says of host memory, processors and drives."""

import pytest

from tests.conftest import SMALL_DENSE
from trainplan.costmodel.axes.values import has_drives
from trainplan.costmodel.hardware.cluster import (
    ClusterSpec,
    DriveSpec,
    HostSpec,
    NodeGroup,
    parse_cluster,
)
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.measured.host import (
    cpu_adam_params_per_second,
    drive_both_bytes_per_second,
    drive_bytes_per_second,
    drive_free_bytes,
    host_copy_bytes_per_second,
    host_memory_bytes,
    host_notes,
    with_measured_drives,
)
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.profiles.profile import (
    CopyPoint,
    Host,
    OptimizerPoint,
    Origin,
    Profile,
    Timing,
)

GIB = 2**30


def copy(direction, seconds, **more):
    return CopyPoint(
        direction=direction, num_bytes=GIB, time=Timing(seconds=seconds), **{"concurrent": 1} | more
    )


def host(**fields):
    return Host(name="node", num_gpus=8, **fields)


def test_each_way_has_its_own_speed_of_pinned_copies_of_most_gpus_at_once():
    points = [
        copy("host_to_device", 0.02),
        copy("host_to_device", 0.04, concurrent=8),
        copy("device_to_host", 0.05, concurrent=8),
        copy("host_to_device", 0.5, concurrent=8, pageable=True),
        copy("host_to_device", 0.9, concurrent=8, both_ways=True),
        copy("host_to_host", 9.0, concurrent=8, pageable=True),
    ]
    assert host_copy_bytes_per_second("host_to_device", points) == pytest.approx(GIB / 0.04)
    assert host_copy_bytes_per_second("device_to_host", points) == pytest.approx(GIB / 0.05)
    assert host_copy_bytes_per_second("device_to_host", points[:2]) is None


def test_of_small_copies_the_speed_is_not_taken():
    small = CopyPoint(direction="host_to_device", num_bytes=2**10, time=Timing(seconds=1.0))
    found = host_copy_bytes_per_second("host_to_device", [small, copy("host_to_device", 0.1)])
    assert found == pytest.approx(GIB / 0.1)


def test_a_drive_is_as_fast_as_past_its_cache_with_most_requests():
    points = [
        copy("nvme_read", 0.01, concurrent=8, cached=True),
        copy("nvme_read", 0.2, concurrent=8),
        copy("nvme_read", 0.6, concurrent=1),
        copy("nvme_write", 0.4, concurrent=8),
    ]
    assert drive_bytes_per_second("nvme_read", points) == pytest.approx(GIB / 0.2)
    assert drive_bytes_per_second("nvme_write", points) == pytest.approx(GIB / 0.4)
    assert drive_bytes_per_second("nvme_read", points[:1]) is None


def test_what_a_drive_does_both_ways_at_once_is_a_speed_of_its_own():
    both = copy("nvme_read", 0.7, concurrent=8, both_ways=True)
    assert drive_bytes_per_second("nvme_read", [*DRIVE, both]) == pytest.approx(GIB / 0.2)
    assert drive_both_bytes_per_second([*DRIVE, both]) == pytest.approx(GIB / 0.7)
    assert drive_both_bytes_per_second(DRIVE) is None
    assert drive_both_bytes_per_second([both.model_copy(update={"cached": True})]) is None
    found = machine(profile(*DRIVE, both, drive_free_bytes=GIB)).drives
    assert found.both_bytes_per_second == pytest.approx(GIB / 0.7)


def test_of_updates_in_host_memory_the_largest_counts_as_caches_hold_smaller_ones():
    small, large = (
        OptimizerPoint(num_params=size, place="cpu", time=Timing(seconds=seconds))
        for size, seconds in ((10**6, 1e-4), (10**8, 0.1))
    )
    assert cpu_adam_params_per_second(2, [small, large, small]) == pytest.approx(2e9)


def test_the_node_updates_what_all_its_processes_do_together():
    together, alone, former = (
        OptimizerPoint(num_params=10**8, place="cpu", processes=n, time=Timing(seconds=seconds))
        for n, seconds in ((8, 2.0), (1, 0.1), (None, 4.0))
    )
    assert cpu_adam_params_per_second(8, [together, alone]) == pytest.approx(8 * 10**8 / 2.0)
    assert cpu_adam_params_per_second(8, [former]) == pytest.approx(8 * 10**8 / 4.0)
    assert cpu_adam_params_per_second(8, [alone]) is None


def test_memory_and_room_are_those_of_the_smallest_host_and_unknown_where_one_is():
    small, large, silent = (
        host(memory_bytes=GIB, drive_free_bytes=5),
        host(memory_bytes=2 * GIB),
        host(),
    )
    assert host_memory_bytes([large, small]) == GIB
    assert host_memory_bytes([large, silent]) is None
    assert host_memory_bytes([]) is None
    assert drive_free_bytes([small]) == 5
    assert drive_free_bytes([small, large]) is None


def test_points_and_hosts_of_former_profiles_are_read_as_they_were_meant():
    text = """{"gpu": "h100-sxm", "gpus_per_node": 8, "origins": [{"source": "a test"}],
      "hosts": [{"name": "node", "num_gpus": 8}],
      "points": [{"kind": "copy", "direction": "nvme_read", "num_bytes": 1024, "concurrent": 1,
                  "time": {"seconds": 1.0}},
                 {"kind": "optimizer", "num_params": 8, "place": "cpu",
                  "time": {"seconds": 1.0}}]}"""
    drive, adam = Profile.model_validate_json(text).points
    assert (drive.cached, drive.pageable, drive.both_ways) == (False, False, False)
    assert adam.processes is None


DRIVE = (copy("nvme_read", 0.2, concurrent=8), copy("nvme_write", 0.5, concurrent=8))


def profile(*points, **fields):
    return Profile(
        gpu="h100-sxm",
        gpus_per_node=8,
        origins=(Origin(source="a test"),),
        points=points,
        hosts=(host(**fields),),
    )


def machine(measured, stated=None):
    group = NodeGroup(gpu="h100-sxm", num_nodes=1, gpus_per_node=8, host=stated)
    return measured_machine(ClusterSpec(name="mine", groups=(group,)), "bf16", measured)


def test_memory_and_drive_of_a_profile_reach_the_machine_and_say_so():
    found = machine(profile(*DRIVE, memory_bytes=GIB, drive_free_bytes=7 * GIB))
    assert found.host_memory_bytes == GIB
    assert found.drives.space_bytes == 7 * GIB
    assert found.drives.read_bytes_per_second == pytest.approx(GIB / 0.2)
    assert found.drives.write_bytes_per_second == pytest.approx(GIB / 0.5)
    assert found.drives.written_bytes is None
    written = {p.quantity for p in found.provenance if (p.kind, p.source) == ("measured", "a test")}
    assert written == {"h100-sxm host memory", "h100-sxm drive"}


def test_a_profile_without_a_host_leaves_the_machine_as_it_was():
    found, plain = machine(profile()), machine(None)
    for name in ("host_bytes_per_second", "host_memory_bytes", "drives", "provenance"):
        assert getattr(found, name) == getattr(plain, name)
    assert found.cpu_adam_params_per_second is None


def test_speeds_are_as_measured_and_sizes_as_the_cluster_states_them():
    drives = DriveSpec(count=4, tb=2, read_gb_per_s=7, write_gb_per_s=5, tb_written=1000)
    stated = HostSpec(memory_gib=512, adam_params_per_s=1e9, drives=drives)
    adam = OptimizerPoint(num_params=10**8, place="cpu", time=Timing(seconds=1.0))
    mine = profile(*DRIVE, adam, memory_bytes=GIB, drive_free_bytes=7 * GIB)
    found = machine(mine, stated)
    assert found.host_memory_bytes == 512 * GIB
    assert found.drives.space_bytes == 8e12
    assert found.drives.written_bytes == 4e15
    assert found.drives.read_bytes_per_second == pytest.approx(GIB / 0.2)
    assert found.cpu_adam_params_per_second == pytest.approx(8e8)
    assert machine(profile(), stated).cpu_adam_params_per_second == 1e9


@pytest.mark.parametrize(
    ("points", "fields"),
    [
        (DRIVE[:1], {"drive_free_bytes": GIB}),
        (DRIVE, {}),
        (DRIVE, {"drive_free_bytes": GIB, "drive_file_system": "nfs4"}),
        ([one.model_copy(update={"cached": True}) for one in DRIVE], {"drive_free_bytes": GIB}),
    ],
    ids=["one way", "no room known", "of several nodes", "through the cache"],
)
def test_a_drive_that_is_not_known_whole_is_not_known(points, fields):
    assert machine(profile(*points, **fields)).drives is None


def test_nodes_whose_drives_nobody_states_have_the_one_that_was_measured():
    mine = profile(*DRIVE, drive_free_bytes=7 * GIB)
    plain, other = parse_cluster("1x8:h100-sxm"), parse_cluster("1x8:h200-sxm")
    found = with_measured_drives(plain, mine)
    (group,) = found.groups
    assert group.host.drives.tb == pytest.approx(7 * GIB / 1e12)
    assert group.host.drives.write_gb_per_s == pytest.approx(GIB / 0.5 / 1e9)
    assert has_drives(job_on(found))
    assert not has_drives(job_on(plain))
    assert with_measured_drives(other, mine) == other
    assert with_measured_drives(plain, profile(*DRIVE)) == plain
    written = measured_machine(found, "bf16", mine).provenance
    assert "h100-sxm host" not in {p.quantity for p in written}
    assert ("h100-sxm drive", "measured") in {(p.quantity, p.kind) for p in written}


def test_drives_of_known_number_and_unknown_speed_share_the_measured_one():
    mine = profile(*DRIVE, drive_free_bytes=GIB)
    (group,) = with_measured_drives(parse_cluster("1x8:h100-sxm@dgx-h100"), mine).groups
    assert (group.host.drives.count, group.host.drives.tb) == (8, 3.84)
    assert 8 * group.host.drives.read_gb_per_s == pytest.approx(GIB / 0.2 / 1e9)
    stated = HostSpec(drives=DriveSpec(tb=1, read_gb_per_s=7, write_gb_per_s=5))
    cluster = ClusterSpec(
        name="mine",
        groups=(NodeGroup(gpu="h100-sxm", num_nodes=1, gpus_per_node=8, host=stated),),
    )
    assert with_measured_drives(cluster, mine) == cluster
    written = {p.quantity for p in measured_machine(cluster, "bf16", mine).provenance}
    assert {"h100-sxm host", "h100-sxm drive"} <= written


def job_on(cluster):
    training = TrainingSpec(seq_length=32, global_batch_size=8, precision="bf16")
    return Job(model=SMALL_DENSE, training=training, cluster=cluster)


def test_an_offloaded_layout_says_what_was_not_measured():
    whole = Layout(offload={"optimizer": 1.0})
    modules = Layout(offload_modules=("mlp_norm",))
    adam = OptimizerPoint(num_params=10**8, place="cpu", time=Timing(seconds=1.0))
    assert host_notes(Layout(), profile()) == ()
    assert host_notes(whole, None) == ()
    assert [note.split(";")[0] for note in host_notes(whole, profile())] == [
        "host copies not measured: datasheet",
        "Adam in host memory not measured: as published",
    ]
    assert len(host_notes(modules, profile())) == 1
    measured = adam, copy("device_to_host", 1.0)
    assert host_notes(whole, profile(*measured)) == ()
    for offload in ({"optimizer": 1.0, "tier": "nvme"}, {"parameters": "nvme"}):
        (written,) = host_notes(Layout(offload=offload), profile(*measured, DRIVE[0]))
        assert written.startswith("drive not measured: as the cluster states")
        assert host_notes(Layout(offload=offload), profile(*measured, *DRIVE)) == ()
    assert host_notes(Layout(offload={"tier": "nvme"}), profile()) == ()
