"""Profiles out of journals."""

from pathlib import Path

import pytest
from rich.console import Console

from trainplan.cli.blocks.screen import drawn
from trainplan.cli.pages.profile import profile_page
from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.hardware.cluster import ClusterSpec, NodeGroup
from trainplan.costmodel.measured.profile import measured_machine
from trainplan.costmodel.profiles.profile import (
    CollectivePoint,
    CopyPoint,
    Failure,
    Host,
    OffloadedStepPoint,
    Origin,
    OverlapPoint,
    ProductPoint,
    Profile,
    Software,
    StreamPoint,
    Timing,
)
from trainplan.profiler.fit.assemble import device_of, drive_notes, gpu_of, profile_of
from trainplan.profiler.fit.merge import merged
from trainplan.profiler.journal.records import Header, JournalContent
from trainplan.profiler.launch.requests import TINY_LLAMA
from trainplan.profiler.task import Request

GIB = 2**30
REQUEST = Request(
    model=TINY_LLAMA,
    tensor_parallel=(1,),
    micro_batch_sizes=(1,),
    seq_length=512,
    precision="fp32",
    quick=True,
)
ORIGIN = Origin(source="plan profile on a test")
CPU_HOST = Host(
    name="a", num_gpus=2, cpu="AMD EPYC 7B12 64-Core Processor", memory_bytes=8 * GIB, num_cores=2
)
POINTS = (
    ProductPoint(m=1000, n=1000, k=1000, precision="fp32", time=Timing(seconds=0.02)),
    ProductPoint(m=1000, n=1000, k=500, precision="fp32", time=Timing(seconds=0.005)),
    ProductPoint(m=100, n=100, k=100, groups=4, precision="bf16", time=Timing(seconds=0.008)),
    StreamPoint(name="norm", moved_bytes=10**9, time=Timing(seconds=0.1)),
    StreamPoint(name="norm", moved_bytes=10**6, time=Timing(seconds=0.001)),
    CopyPoint(direction="host_to_device", num_bytes=10**9, time=Timing(seconds=0.25)),
    CollectivePoint(
        operation="all_reduce", ranks=2, per_node=2, num_bytes=10**9, time=Timing(seconds=0.5)
    ),
)


def gpu_host(*names, **more):
    return Host(name="a", num_gpus=len(names), gpu_names=names, **more)


def across(seconds, num_bytes=10**9):
    return CollectivePoint(
        operation="all_gather",
        ranks=4,
        per_node=2,
        num_bytes=num_bytes,
        time=Timing(seconds=seconds),
    )


def content(*hosts, points=POINTS, **more):
    header = Header(
        schema="trainplan/profile-journal/v1",
        created="2025-08-01T00:00:00Z",
        request=REQUEST,
        software=Software(torch="2.4", backend="gloo"),
        hosts=hosts,
    )
    fields = {"failures": (), "notes": (), "done": frozenset(), "starts": {}}
    fields |= {"seconds": {}, "doubts": {}}
    return JournalContent(header=header, points=points, **fields | more)


def test_gpus_are_called_as_in_the_catalog():
    assert gpu_of([gpu_host("NVIDIA H200")]) == "h200-sxm"
    for name in catalog.gpu_names():
        for device_name in catalog.gpu(name).device_names:
            assert gpu_of([gpu_host(device_name)]) == name


def test_gpus_the_catalog_lacks_and_cpus_are_called_as_one_word():
    assert gpu_of([gpu_host("NVIDIA Quadro RTX 8000")]) == "nvidia-quadro-rtx-8000"
    assert gpu_of([CPU_HOST]) == "cpu-amd-epyc-7b12-64-core"
    intel = CPU_HOST.model_copy(update={"cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz"})
    assert gpu_of([intel]) == "cpu-intel-xeon"
    assert gpu_of([CPU_HOST.model_copy(update={"cpu": ""})]) == "cpu"


def test_a_run_on_h200_rests_on_the_catalog():
    host = gpu_host(*["NVIDIA H200"] * 8, gpu_memory_bytes=140 * GIB)
    failure = Failure(item="p2p", detail="one GPU only")
    found = profile_of(
        content(host, host.model_copy(update={"name": "b"}), failures=(failure,), notes=("x",)),
        ORIGIN,
        ["y"],
    )
    assert catalog.gpu_named("NVIDIA H200") == found.gpu
    assert found.device is None
    assert (found.num_nodes, found.gpus_per_node) == (2, 8)
    assert [one.name for one in found.hosts] == ["a", "b"]
    assert found.software.torch == "2.4"
    assert found.failures == (failure,)
    assert found.notes[:2] == ("x", "y")
    assert found.points == POINTS
    assert "power_exponent" not in found.constants


def test_a_cpu_brings_the_most_that_was_reached():
    found = profile_of(content(CPU_HOST), ORIGIN)
    device = found.device
    assert (device.vendor, device.architecture) == ("cpu", "cpu")
    assert device.memory_gib.value == pytest.approx(4)
    assert device.memory_gb_per_s.value == pytest.approx(10)
    assert device.host_gb_per_s.value == pytest.approx(4)
    assert device.link_gb_per_s.value == pytest.approx(2)
    peaks = {name: one.value for name, one in device.peak_tflops.items()}
    assert peaks == pytest.approx({"fp32": 0.2, "bf16": 0.001})
    assert (device.gpus_per_node, device.nvlink_domain) == (2, 2)
    assert device.host_factor.value == 0
    for name in ("power_exponent", "overhead_fraction", "straggler_per_doubling"):
        assert found.constants[name].value == pytest.approx(0, abs=1e-9)
        assert found.constants[name].source.startswith("plan profile on a test: ")


def test_what_hides_collectives_on_a_cpu_is_measured_beside_products():
    """Of 4 seconds of products beside traffic 1 is lost; 4 / 8 of the traffic goes on in them."""
    alongside = OverlapPoint(
        operation="all_reduce",
        ranks=2,
        num_bytes=2**20,
        compute_slowdown=4 / 3,
        communication_slowdown=8 / 3,
    )
    found = profile_of(content(CPU_HOST, points=(*POINTS, alongside)), ORIGIN).constants
    assert found["overlap_contention"].value == pytest.approx((1 / 4) * (8 / 3))
    assert found["overlap_window"].value == pytest.approx(4 / 8)
    gpu = profile_of(
        content(gpu_host("NVIDIA H100"), points=(*POINTS, alongside)), ORIGIN
    ).constants
    assert "overlap_window" not in gpu


def test_an_unknown_gpu_has_a_device_with_the_memory_the_driver_says():
    host = gpu_host("NVIDIA Quadro RTX 8000", gpu_memory_bytes=24 * GIB)
    found = profile_of(content(host), ORIGIN)
    assert found.device.memory_gib.value == 24
    assert found.device.vendor == "unknown"
    assert found.device.host_factor is None
    assert found.constants.keys().isdisjoint({"power_exponent", "overhead_fraction"})


@pytest.mark.parametrize("left", [(), POINTS[:3], POINTS[3:]])
def test_a_device_without_products_or_streams_has_no_numbers_and_a_note_says_so(left):
    assert device_of(CPU_HOST, left) is None
    found = profile_of(content(CPU_HOST, points=left), ORIGIN, ["y"])
    assert found.device is None
    assert found.points == left
    assert found.notes[0] == "y"
    assert "--only gemm --only stream" in found.notes[-1]
    assert found.fitted.gemm == {}
    assert Profile.model_validate_json(found.model_dump_json()) == found
    with pytest.raises(CatalogError, match=r"unknown GPU 'cpu-amd.*--only gemm --only stream"):
        merged([found])


def test_a_profile_without_a_device_joins_one_with_it():
    parts = [profile_of(content(CPU_HOST, points=p), ORIGIN) for p in (POINTS[6:], POINTS)]
    joined = merged(parts)
    assert joined.device == parts[1].device
    assert not any("--only gemm" in note for note in joined.notes)


def test_the_page_of_a_profile_without_a_device_has_its_note():
    found = profile_of(content(CPU_HOST, points=POINTS[6:]), ORIGIN)
    console = Console(width=200)
    with console.capture() as page:
        console.print(*map(drawn, profile_page(found, Path("links.json"))))
    assert "plan profile --only gemm --only stream" in page.get()
    assert "--cluster" not in page.get()


def test_links_and_copies_nobody_measured_are_said_to_be_assumed():
    device = device_of(CPU_HOST, POINTS[:5])
    for number in (device.link_gb_per_s, device.host_gb_per_s):
        assert number.value == device.memory_gb_per_s.value
        assert number.source.startswith("assumed: ")
    whole = device_of(CPU_HOST, POINTS)
    assert whole.link_gb_per_s.source.startswith("measured")
    assert whole.host_gb_per_s.source.startswith("measured")


def test_links_between_nodes_are_no_links_in_a_node():
    slow_inside, fast_across = POINTS[-1], across(0.01)
    device = device_of(CPU_HOST, (*POINTS[:-1], slow_inside, fast_across))
    assert device.link_gb_per_s.value == pytest.approx(2)


def test_nodes_of_an_unknown_device_have_the_fastest_link_measured_between_them():
    hosts = CPU_HOST, CPU_HOST.model_copy(update={"name": "b"})
    found = profile_of(content(*hosts, points=(*POINTS, across(0.5), across(0.8))), ORIGIN)
    assert found.device.nic_gb_per_s.value == pytest.approx(0.75 * 0.5 / 0.5)
    assert device_of(CPU_HOST, POINTS).nic_gb_per_s is None
    group = NodeGroup(gpu=found.gpu, device=found.device, num_nodes=2, gpus_per_node=2)
    machine = measured_machine(ClusterSpec(groups=(group,)), "fp32", found)
    assert machine.nic_bytes_per_second == pytest.approx(0.75e9)


def test_a_drive_measured_through_its_cache_alone_is_said_so_and_is_no_link_of_a_gpu():
    cached = CopyPoint(
        direction="nvme_read", num_bytes=10**9, cached=True, time=Timing(seconds=0.01)
    )
    direct = cached.model_copy(update={"cached": False})
    assert "cache alone" in drive_notes([cached])[0]
    assert drive_notes([cached, direct]) == drive_notes(POINTS) == ()
    found = profile_of(content(CPU_HOST, points=(*POINTS, cached)), ORIGIN)
    assert any("cache alone" in note for note in found.notes)
    assert found.device.host_gb_per_s.value == pytest.approx(4)


def test_a_step_from_the_drive_is_shown_beside_its_estimate():
    step = OffloadedStepPoint(
        layers=8,
        width=1024,
        tokens=128,
        read_bytes=3 * 10**9,
        written_bytes=2 * 10**9,
        lane_seconds={"CPU": 1.0, "drive read": 3.0},
        floor_seconds=3.0,
        path_seconds=3.6,
        time=Timing(seconds=4.0),
    )
    console = Console(width=250)
    found = profile_of(content(CPU_HOST, points=(*POINTS, step)), ORIGIN)
    with console.capture() as page:
        console.print(*map(drawn, profile_page(found, Path("mine.json"))))
    assert (
        "8 layers of 1024, 128 tokens: 4.00 s measured, 3.60 s estimated (-10%), of which 3.00 s "
        "are drive read; 3 GB read, 2 GB written" in page.get()
    )
