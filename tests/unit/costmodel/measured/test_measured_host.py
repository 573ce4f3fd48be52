"""What a profile says of host memory, processors and drives."""

import pytest

from trainplan.costmodel.measured.host import (
    cpu_adam_params_per_second,
    drive_bytes_per_second,
    drive_free_bytes,
    host_copy_bytes_per_second,
    host_memory_bytes,
)
from trainplan.costmodel.spec.evidence.profile import (
    CopyPoint,
    Host,
    OptimizerPoint,
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
                 {"kind": "optimizer", "num_params": 8, "place": "cpu", "time": {"seconds": 1.0}}]}"""
    drive, adam = Profile.model_validate_json(text).points
    assert (drive.cached, drive.pageable, drive.both_ways) == (False, False, False)
    assert adam.processes is None
