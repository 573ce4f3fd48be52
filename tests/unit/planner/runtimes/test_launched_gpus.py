"""The GPU that a launch names is the one that it is priced on."""

import pytest

from tests.launches import launch, word
from trainplan.costmodel.presets import gpus_called
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.ranks import counts_of, launched_on, machines_of


def on(gpu=None, features=None, nodes=2, gpus=8):
    words = {"gpu": gpu and word(gpu), "features": features and word(features)}
    return launched_on(launch("", **words), nodes, gpus)


@pytest.mark.parametrize(
    ("called", "gpu"),
    [
        ("a100", "a100-sxm-80gb"),
        ("A100-80GB", "a100-sxm-80gb"),
        ("v100-32g", "v100-sxm-32gb"),
        ("v100-16g", "v100-sxm-16gb"),
        ("nvidia-h100-mega-80gb", "h100-sxm"),
        ("nvidia-h200-141gb", "h200-sxm"),
        ("NVIDIA-A100-SXM4-80GB", "a100-sxm-80gb"),
        ("nvidia_a100_80gb_pcie", "a100-pcie-80gb"),
        ("volta", "v100-sxm-32gb"),
        ("rtx_3090", "rtx3090"),
        ("mi250", "mi250x"),
    ],
)
def test_names_of_schedulers_and_clouds_are_those_of_the_catalog(called, gpu):
    assert gpus_called(called)[0] == gpu


@pytest.mark.parametrize("called", ["xyz", "a40", "gpu", "80", "h100_nvl", "v100l", ""])
def test_other_names_are_none(called):
    assert gpus_called(called) == ()


def test_a_name_that_may_be_several_is_assumed_to_be_the_usual_one_and_says_so():
    found = on("a100")
    assert found.cluster.name == "2x8:a100-sxm-80gb"
    assert [problem.cause for problem in found.problems] == ["assumed_gpu"]
    assert "a100-sxm-40gb" in found.problems[0].says
    assert found.fields[-1].origin == "assumed"


def test_a_property_of_nodes_says_which_of_several():
    found = on("a100", "a100_80&ib")
    assert found.cluster.groups[0].gpu == "a100-sxm-80gb"
    assert "a100-sxm-40gb" not in found.problems[0].says
    assert on("a100", "hbm40g").cluster.groups[0].gpu == "a100-sxm-40gb"
    assert on(features="v100-16g&nvlink").cluster.groups[0].gpu == "v100-sxm-16gb"
    assert on(features="GPU_SKU:H100_SXM5").cluster.groups[0].gpu == "h100-sxm"


def test_properties_that_name_no_gpu_are_passed_over():
    found = on(features="ib&80")
    assert found.cluster.name == "2x8:h100-sxm"
    assert not found.problems


def test_a_gpu_that_the_catalog_does_not_have_is_never_replaced():
    found = on("a40")
    assert found.cluster is None
    assert [(one.cause, one.verdict) for one in found.problems] == [("unknown_gpu", "unread")]


def test_a_type_of_machine_brings_its_network():
    found = on("ml.p5.48xlarge")
    assert found.cluster.groups[0].gpu == "h100-sxm"
    assert found.cluster.groups[0].nic.transport == "efa"
    assert on("p5.48xlarge", gpus=4).cluster.name == "2x4:h100-sxm"
    assert on("Standard_ND96isr_H100_v5").cluster.groups[0].gpu == "h100-sxm"


def test_the_cluster_of_the_user_wins():
    request = Request(cluster=on("h200").cluster)
    assert machines_of(launch("", gpu=word("a100")), request, 16).cluster == request.cluster


def test_a_plain_python_says_nothing_of_its_ranks():
    assert counts_of(launch("", starter="python")) is None
