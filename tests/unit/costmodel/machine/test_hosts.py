"""The host of a node: stated, of the catalog, or not known."""

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.base.units import GB, GIB, TERA
from trainplan.costmodel.hardware.cluster import ClusterSpec, parse_cluster
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.machine.hosts import HOST_EFFICIENCY

GROUP = {"gpu": "h100-sxm", "num_nodes": 1, "gpus_per_node": 8}


def machine(*hosts):
    groups = [{**GROUP, "host": host} for host in hosts]
    between = {"gb_per_s": 25} if len(groups) > 1 else None
    return machine_of(ClusterSpec(groups=groups, between_groups=between), "bf16")


def test_without_a_host_nothing_is_known_of_it():
    one = machine(None)
    assert (one.host_memory_bytes, one.drives, one.cpu_adam_params_per_second) == (None,) * 3
    assert one.host_bytes_per_second == HOST_EFFICIENCY * 64 * GB


def test_figures_of_the_file_count_before_those_of_the_catalog():
    one = machine({"like": "dgx-h100", "memory_gib": 100, "adam_params_per_s": 1e9})
    assert one.host_memory_bytes == 100 * GIB
    assert one.cpu_adam_params_per_second == 1e9
    assert one.drives.space_bytes == pytest.approx(8 * 3.84 * TERA)
    assert one.drives.read_bytes_per_second is None


def test_the_short_form_names_a_host():
    one = machine_of(parse_cluster("1x16:v100-sxm-32gb@dgx-2"), "fp16")
    assert one.host_memory_bytes == 1536 * GIB
    assert one.drives.read_bytes_per_second == pytest.approx(16 * 1.6 * GB)
    alone = machine_of(parse_cluster("1x16:v100-sxm-32gb"), "fp16")
    assert one.host_bytes_per_second == alone.host_bytes_per_second / 4


def test_a_host_that_is_not_in_the_catalog_is_told_with_the_nearest():
    with pytest.raises(CatalogError, match="'dgx-h10': did you mean 'dgx-h100'"):
        machine_of(parse_cluster("1x8:h100-sxm@dgx-h10"), "bf16")


@pytest.mark.parametrize(("gpus", "sharing"), [(1, 1), (2, 2), (8, 4)])
def test_no_more_gpus_share_a_link_than_a_node_has(gpus, sharing):
    one = machine_of(parse_cluster(f"1x{gpus}:v100-sxm-32gb@dgx-2"), "fp16")
    alone = machine_of(parse_cluster(f"1x{gpus}:v100-sxm-32gb"), "fp16")
    assert one.host_bytes_per_second == alone.host_bytes_per_second / sharing


def test_all_gpus_together_copy_no_faster_than_the_memory_of_the_host():
    assert machine({"memory_gb_per_s": 400}).host_bytes_per_second == 50 * GB
    assert machine({"memory_gb_per_s": 800}).host_bytes_per_second == HOST_EFFICIENCY * 64 * GB


def test_of_unlike_groups_what_one_lacks_is_not_known_of_all():
    drive = {"tb": 2, "read_gb_per_s": 3, "write_gb_per_s": 2}
    both = machine({"memory_gib": 500, "drives": drive}, {"memory_gib": 300, "drives": drive})
    assert (both.host_memory_bytes, both.drives.write_bytes_per_second) == (300 * GIB, 2 * GB)
    one = machine({"memory_gib": 500, "drives": drive}, {"memory_gib": 300})
    assert (one.host_memory_bytes, one.drives) == (300 * GIB, None)
    assert machine({"memory_gib": 500}, None).host_memory_bytes is None


def test_every_figure_of_a_host_of_the_catalog_has_a_source():
    for name, one in catalog.hosts().items():
        for value in one.model_dump().values():
            parts = [value] if not value or "source" in value else list(value.values())
            assert all(not part or part["source"] for part in parts), name
