"""Clusters as people write them."""

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import PlanError, SpecError
from trainplan.costmodel.hardware.cluster import NodeGroup, parse_cluster
from trainplan.costmodel.machine.constants import machine_of
from trainplan.costmodel.presets.clusters import (
    cluster_of,
    gpu_intended,
    machine_named,
    machines,
    read_cluster,
    short_names,
)


def only(text: str) -> NodeGroup:
    (group,) = cluster_of(text).groups
    return group


@pytest.mark.parametrize(
    ("text", "nodes", "gpus", "gpu"),
    [
        ("8x8:h100", 8, 8, "h100-sxm"),
        ("8 x 8 : H100", 8, 8, "h100-sxm"),
        ("8x8 a100", 8, 8, "a100-sxm-80gb"),
        ("2x8:a100_40gb", 2, 8, "a100-sxm-40gb"),
        ("1x8:RTX-4090", 1, 8, "rtx4090"),
        ("64xh100", 8, 8, "h100-sxm"),
        ("64xh100-sxm", 8, 8, "h100-sxm"),
        ("8 h100", 1, 8, "h100-sxm"),
        ("4xh100", 1, 4, "h100-sxm"),
        ("64xgb200", 16, 4, "gb200"),
        ("16xgh200", 4, 4, "gh200-96gb"),
        ("32xv100-sxm-32gb", 2, 16, "v100-sxm-32gb"),
        ("1x72:gb200", 18, 4, "gb200"),
        ("1x8:gb200", 2, 4, "gb200"),
        ("1x2:gb200", 1, 2, "gb200"),
        ("1x16:h100", 1, 16, "h100-sxm"),
        ("gb200-nvl72", 18, 4, "gb200"),
        ("2xgb200-nvl72", 36, 4, "gb200"),
        ("GB300_NVL72", 18, 4, "gb300"),
        ("2xp5.48xlarge", 2, 8, "h100-sxm"),
        ("p5en", 1, 8, "h200-sxm"),
        ("3 p6-b200", 3, 8, "b200"),
        ("a3-megagpu-8g", 1, 8, "h100-sxm"),
        ("a2-megagpu-16g", 1, 16, "a100-sxm-40gb"),
        ("4xND_H100_v5", 4, 8, "h100-sxm"),
        ("Standard_ND96isr_H100_v5", 1, 8, "h100-sxm"),
        ("BM.GPU.H100.8", 1, 8, "h100-sxm"),
        ("g5.48xlarge", 1, 8, "a10g"),
        ("4xdgx-h200", 4, 8, "h200-sxm"),
    ],
)
def test_a_text_names_nodes_of_a_gpu(text: str, nodes: int, gpus: int, gpu: str):
    group = only(text)
    assert (group.num_nodes, group.gpus_per_node, group.gpu) == (nodes, gpus, gpu)


@pytest.mark.parametrize("text", ["8x8:h100-sxm", "2x8:h100-sxm@dgx-h100", "1x8:l4+2x4:h200-sxm"])
def test_a_text_that_says_all_is_read_as_ever_and_needs_no_remark(text: str):
    written = read_cluster(text)
    assert written.cluster == parse_cluster(text)
    assert written.remarks == ()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("8x8:h100", "cluster 8x8:h100: h100-sxm"),
        ("64xh100", "cluster 64xh100: 8 nodes of 8 h100-sxm"),
        ("1x72:gb200", "cluster 1x72:gb200: 18 nodes of 4 gb200 in one NVLink domain"),
        (
            "2xp4d.24xlarge",
            "cluster 2xp4d.24xlarge: 2 nodes of 8 a100-sxm-40gb, 6.25 GB/s of network (efa) for "
            "each GPU",
        ),
    ],
)
def test_what_a_text_leaves_open_is_said_in_a_line(text: str, written: str):
    assert read_cluster(text).remarks == (written,)


def test_every_group_of_a_mix_is_read_and_said():
    written = read_cluster("8xh100 + 2xp5en@dgx-h200")
    assert [group.gpu for group in written.cluster.groups] == ["h100-sxm", "h200-sxm"]
    assert written.cluster.num_gpus == 24
    assert written.cluster.groups[1].host is not None
    assert written.cluster.groups[1].host.like == "dgx-h200"
    assert len(written.remarks) == 2


def test_the_name_of_a_cluster_says_all_of_it():
    assert cluster_of("64xh100").name == "8x8:h100-sxm"
    assert cluster_of("p5").name == "1xp5.48xlarge"
    for text in ("64xh100", "2x8:a100@dgx-a100", "p5", "gb200-nvl72+8xh100"):
        assert cluster_of(cluster_of(text).name) == cluster_of(text)


def nic_of_each_gpu(text: str, precision: str = "bf16") -> float:
    return machine_of(cluster_of(text), precision).nic_bytes_per_second


def test_the_network_of_a_machine_is_what_its_cloud_sells():
    full = nic_of_each_gpu("2x8:h100-sxm")
    assert nic_of_each_gpu("2xp5.48xlarge") == pytest.approx(full)
    assert nic_of_each_gpu("2xa3-megagpu-8g") == pytest.approx(full / 2)
    assert nic_of_each_gpu("2xa3-highgpu-8g") == pytest.approx(full / 4)
    assert nic_of_each_gpu("2xp4d.24xlarge") == pytest.approx(full / 8)
    assert nic_of_each_gpu("2xa2-ultragpu-8g") == pytest.approx(full / 32)


def test_a_rack_is_one_domain_and_two_are_two():
    group = only("2xgb200-nvl72")
    assert group.domain_gpus(catalog.gpu("gb200")) == 72
    assert only("2xa2-megagpu-16g").domain_gpus(catalog.gpu("a100-sxm-40gb")) == 16
    assert only("2xp5").domain_gpus(catalog.gpu("h100-sxm")) == 8


@pytest.mark.parametrize("name", machines())
def test_every_machine_is_whole_and_priced(name: str):
    machine = machines()[name]
    assert machine.source
    spec = catalog.gpu(machine.gpu)
    host = catalog.host_of(only(name))
    assert (host is None) == (machine.host is None)
    assert host is None or (host.memory_gib or 0) >= 100
    machine_of(cluster_of(f"2x{name}"), "bf16" if "bf16" in spec.peak_tflops else "fp16")
    assert machine_named(name) == name
    assert all(machine_named(alias) == name for alias in machine.aliases)
    assert machine_named(name.lower()) == machine_named(name.upper()) == name


def test_no_name_of_a_machine_is_that_of_a_gpu_or_of_two_machines():
    called = [one for name, machine in machines().items() for one in (name, *machine.aliases)]
    assert len({one.lower() for one in called}) == len(called)
    assert not {one.lower() for one in called} & {*catalog.gpu_names(), *short_names()}


def test_short_names_are_short_for_gpus_and_are_none_themselves():
    assert set(short_names().values()) <= set(catalog.gpu_names())
    assert not set(short_names()) & set(catalog.gpu_names())
    assert gpu_intended("NVIDIA H100 80GB HBM3") == "h100-sxm"
    assert gpu_intended("rtx-pro-6000") == "rtx-pro-6000-server"


@pytest.mark.parametrize(
    "text", ["", "8", "8x8", "x", "h100", "8xfoo", "0xh100", "8x0:h100", "9xh100", "8x8:v100", "+"]
)
def test_a_text_that_names_no_cluster_is_refused(text: str):
    with pytest.raises(PlanError):
        read_cluster(text)


@pytest.mark.parametrize(
    "text", ["9" * 5000 + "xh100", "1048577x1:h100", "8x" + "9" * 30 + ":h100"]
)
def test_a_cluster_that_is_too_large_is_refused_in_a_short_line(text: str):
    with pytest.raises(SpecError, match="too large") as refused:
        read_cluster(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "memory_gib", "drives_tb"),
    [
        ("p5.48xlarge", 2048, 8 * 3.84),
        ("p4de.24xlarge", 1152, 8),
        ("a3-megagpu-8g", 1872, 6000 * 2**30 / 1e12),
        ("a2-ultragpu-8g", 1360, 3000 * 2**30 / 1e12),
        ("ND_H100_v5", 1900, 28 * 2**40 / 1e12),
        ("ND_GB200_v6", 900, 16),
        ("BM.GPU.A100-v2.8", 2048, 27.2),
        ("BM.GPU.H100.8", 2048, 16 * 3.84),
    ],
)
def test_memory_and_drives_of_a_machine_are_what_its_cloud_sells(
    text: str, memory_gib: float, drives_tb: float
):
    host = catalog.host_of(only(text))
    assert host is not None
    assert host.memory_gib == memory_gib
    assert host.drives is not None
    assert host.drives.count * host.drives.tb == pytest.approx(drives_tb, rel=1e-3)
