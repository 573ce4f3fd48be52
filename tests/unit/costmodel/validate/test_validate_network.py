"""What a record says of the network between its nodes."""

import pytest

from tests.unit.costmodel.validate.test_validate_unstated import case
from trainplan.costmodel import catalog


def gb_per_s(gpu, stated):
    """GB/s of each of eight adapters in a node."""
    cluster = {"gpu": gpu, "num_gpus": 16, "nominal_inter_gb_per_s": stated}
    nic = case(cluster=cluster, layout={"tp": 1, "pp": 1, "micro_batch_size": 1}).job.cluster
    return nic.groups[0].nic and nic.groups[0].nic.gb_per_s


@pytest.mark.parametrize(
    ("gpu", "node"), [("a100-sxm-80gb", 50.0), ("h100-sxm", 100.0), ("h100-sxm", 400.0)]
)
def test_more_than_one_gpu_can_send_is_what_its_node_sends(gpu, node):
    assert gb_per_s(gpu, node) == node / 8


@pytest.mark.parametrize(
    ("gpu", "stated"), [("a100-sxm-80gb", 12.5), ("a100-sxm-80gb", 25.0), ("h100-sxm", 50.0)]
)
def test_what_one_gpu_can_send_is_its_own(gpu, stated):
    assert gb_per_s(gpu, stated) == stated


@pytest.mark.parametrize("gpu", [g for g in catalog.gpu_names() if catalog.gpu(g).nic_gb_per_s])
def test_the_usual_adapter_of_a_gpu_is_read_as_its_own(gpu):
    usual = catalog.gpu(gpu).nic_gb_per_s.value
    assert gb_per_s(gpu, float(usual)) == usual


def test_a_run_that_states_none_has_the_usual_adapters():
    assert gb_per_s("h100-sxm", None) is None
    assert gb_per_s("a10g", "100 Gb/s") == pytest.approx(3.125)


def test_a_stated_power_limit_is_that_of_every_gpu():
    cluster = {"gpu": "h100-sxm", "num_gpus": 16, "power_limit_w": 500}
    found = case(cluster=cluster, layout={"tp": 1, "pp": 1, "micro_batch_size": 1}).job.cluster
    assert found.groups[0].power_limit_w == 500


@pytest.mark.parametrize(
    ("gpu", "transport", "adapters"),
    [
        ("h100-sxm", "efa", (32, 12.5, "efa")),
        ("h100-sxm", "roce", (16, 25.0, "roce")),
        ("h100-sxm", "slingshot", (8, 50.0, "slingshot")),
        ("h100-sxm", "ethernet", (8, 50.0, None)),
        ("h100-sxm", None, (8, 50.0, None)),
    ],
)
def test_a_stated_transport_brings_the_adapters_of_the_named_machine(gpu, transport, adapters):
    cluster = {"gpu": gpu, "num_gpus": 16, "nominal_inter_gb_per_s": 50.0, "transport": transport}
    found = case(cluster=cluster, layout={"tp": 1, "pp": 1, "micro_batch_size": 1}).job.cluster
    nic = found.groups[0].nic
    assert (nic.per_node, nic.gb_per_s, nic.transport) == adapters


@pytest.mark.parametrize("library", ["uccl", "nvshmem"])
def test_a_dispatcher_names_the_library_that_posts_for_it(library):
    layout = {"tp": 1, "pp": 1, "micro_batch_size": 1, "moe_dispatcher": f"deepep-{library}"}
    cluster = {"gpu": "h100-sxm", "num_gpus": 16}
    options = case(cluster=cluster, layout=layout).job.options
    assert (options.moe_dispatcher, options.deepep_proxy) == ("deepep", library)
