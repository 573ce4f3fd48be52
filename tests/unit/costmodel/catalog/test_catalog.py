from collections.abc import Iterator
from itertools import pairwise

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.hardware.gpu import FittedConstants
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.spec.base import Sourced

NAMES = catalog.gpu_names()
TRUTH_GPUS = (
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a10g",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "gh200-96gb",
    "h100-sxm",
    "h100-sxm-94gb",
    "h100-sxm-96gb-500w",
    "h200-sxm",
    "l4",
    "mi355x",
    "v100-sxm-32gb",
)
OTHER_GPUS = (
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a6000",
    "a800-sxm-80gb",
    "gaudi2",
    "gaudi3",
    "h100-pcie",
    "h20",
    "h800-sxm",
    "l40s",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi350x",
    "rtx-pro-6000-server",
    "rtx3090",
    "rtx4090",
    "t4",
    "v100-pcie-32gb",
    "v100-sxm-16gb",
    "vr200",
)
PRECISIONS = {"fp32", "fp16", "bf16", "tf32", "fp8", "mxfp8", "nvfp4"}
GEMM_KEYS = {"bf16", "fp8", "fp8_training", "nvfp4_training"}
COLLECTIVES = {"all_reduce", "all_gather", "reduce_scatter", "alltoall"}
PUBLIC = ("https://", "@", "arXiv:", "PCI-SIG", "PCIe 5.0 host", "mlcommons/")
"""What a public source looks like: a page, a repository at a commit, a paper, a bus standard."""
BOUNDS = {
    "memory_gib": (8, 400),
    "memory_gb_per_s": (200, 25_000),
    "link_gb_per_s": (16, 2_000),
    "host_gb_per_s": (16, 500),
    "nic_gb_per_s": (5, 200),
    "tdp_w": (50, 1_500),
    "mtbf_node_days": (10, 5_000),
}
PEAK, SLOW_PEAK = (10, 40_000), (5, 100)
"""TFLOP/s of matrix units, and of those without."""


def numbers(name: str) -> Iterator[tuple[str, Sourced]]:
    spec = catalog.gpu(name)
    for field in BOUNDS:
        number = getattr(spec, field)
        if number is not None:
            yield field, number
    yield from spec.peak_tflops.items()


def chain(name: str) -> list[str]:
    names = [name]
    while (other := catalog.stand_in(names[-1])) is not None:
        names.append(other)
        assert len(names) <= len(NAMES), f"stand-ins of {name} never end"
    return names


def test_every_gpu_of_the_measured_runs_is_in_the_catalog():
    assert set(TRUTH_GPUS) <= set(NAMES)


def test_the_catalog_holds_exactly_the_gpus_it_promises():
    assert set(NAMES) == set(TRUTH_GPUS) | set(OTHER_GPUS)


def test_names_come_sorted_and_lower_case():
    assert list(NAMES) == sorted(NAMES)
    assert all(name == name.lower() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_number_names_a_public_source(name):
    for field, number in numbers(name):
        source = number.source
        assert len(source) >= 15, f"{field} of {name} has no source"
        assert any(mark in source for mark in PUBLIC), f"{field} of {name}: {source}"


@pytest.mark.parametrize("name", NAMES)
def test_every_number_is_plausible(name):
    for field, number in numbers(name):
        low, high = BOUNDS.get(field, SLOW_PEAK if field == "fp32" else PEAK)
        assert low <= number.value <= high, f"{field} of {name}"


@pytest.mark.parametrize("name", NAMES)
def test_peaks_are_of_known_precisions_and_grow_as_they_narrow(name):
    peaks = {key: number.value for key, number in catalog.gpu(name).peak_tflops.items()}
    assert set(peaks) <= PRECISIONS
    half = peaks.get("bf16", peaks.get("fp16", 0.0))
    assert 10 <= half <= 5_000
    assert peaks.get("tf32", half) <= half
    assert half <= peaks.get("fp8", half) <= peaks.get("nvfp4", float("inf"))
    assert peaks.get("mxfp8", peaks.get("fp8")) == peaks.get("fp8")


def test_a_chip_with_links_cut_for_export_differs_in_its_links_alone():
    for name, whole in (("h800-sxm", "h100-sxm"), ("a800-sxm-80gb", "a100-sxm-80gb")):
        cut, full = catalog.gpu(name), catalog.gpu(whole)
        assert cut.link_gb_per_s.value == 200 < full.link_gb_per_s.value
        assert cut.link != full.link, "measured collectives of the whole one do not hold"
        assert cut.memory_gb_per_s.value == full.memory_gb_per_s.value
        for precision, peak in full.peak_tflops.items():
            assert cut.peak_tflops[precision].value == peak.value


def test_formats_that_the_hardware_lacks_are_absent():
    assert "bf16" not in catalog.gpu("v100-sxm-32gb").peak_tflops
    assert "fp8" not in catalog.gpu("a100-sxm-80gb").peak_tflops
    assert "mxfp8" not in catalog.gpu("h100-sxm").peak_tflops


@pytest.mark.parametrize("name", NAMES)
def test_links_slow_down_outwards(name):
    spec = catalog.gpu(name)
    assert spec.memory_gb_per_s.value > spec.link_gb_per_s.value
    if spec.nic_gb_per_s is not None:
        assert spec.nic_gb_per_s.value < spec.link_gb_per_s.value


def test_rack_scale_domains_exceed_their_node():
    rack_scale = {n for n in NAMES if catalog.gpu(n).nvlink_domain > catalog.gpu(n).gpus_per_node}
    assert rack_scale == {"gb200", "gb300", "vr200"}


def test_a_typo_suggests_the_nearest_name():
    with pytest.raises(CatalogError, match=r"unknown GPU 'h100-smx': did you mean 'h100-sxm'"):
        catalog.gpu("h100-smx")


def test_the_name_that_a_driver_prints_suggests_that_of_the_catalog():
    with pytest.raises(CatalogError, match=r"'NVIDIA H100 80GB HBM3': it is 'h100-sxm' here"):
        catalog.gpu("NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    "name",
    ["h100-sxm", "H100-SXM", "h100_sxm", " h100 sxm ", "NVIDIA H100 80GB HBM3", "H100 80GB HBM3"],
)
def test_a_gpu_is_known_by_its_name_in_any_spelling_and_by_that_of_its_driver(name):
    assert catalog.gpu_named(name) == "h100-sxm"


@pytest.mark.parametrize("name", ["h100", "a100", "tpu-v5p", ""])
def test_a_name_that_could_be_several_boards_is_none(name):
    assert catalog.gpu_named(name) is None


def test_no_two_gpus_answer_to_one_name():
    called = [device for name in NAMES for device in (name, *catalog.gpu(name).device_names)]
    assert [catalog.gpu_named(one) for one in called] == [
        name for name in NAMES for _ in (name, *catalog.gpu(name).device_names)
    ]


def test_a_gpu_without_measurements_has_empty_constants():
    assert catalog.fitted("gaudi3") == FittedConstants()


@pytest.mark.parametrize("name", NAMES)
def test_fitted_constants_are_positive_and_name_their_source(name):
    fit = catalog.fitted(name)
    for gemm in fit.gemm.values():
        assert min(gemm.fixed_us, gemm.flop_factor - 1.0, gemm.byte_factor) > 0
        assert gemm.source
    for collective in fit.collectives.values():
        assert collective.alpha_us > 0
        assert collective.sqrt_coefficient >= 0
        assert collective.source
    if fit.attention is not None:
        assert 0 < fit.attention.max_efficiency < 1
        assert 0 < fit.attention.half_length < 10_000
        assert fit.attention.source
    for number in fit.sustained.values():
        assert 0.4 < number.value < 1.5
        assert number.source


@pytest.mark.parametrize("name", NAMES)
def test_what_is_assumed_says_so_and_what_is_measured_names_where(name):
    fit = catalog.fitted(name)
    curves = (*fit.gemm.values(), *fit.collectives.values(), *fit.sustained.values())
    for curve in (*curves, *((fit.attention,) if fit.attention else ())):
        assert (curve.kind == "assumed") == curve.source.startswith("assumed")
        assert any(mark in curve.source for mark in (*PUBLIC, "fit.py", "earlier release"))


@pytest.mark.parametrize("name", NAMES)
def test_fits_are_keyed_by_known_precisions_and_operations(name):
    fit = catalog.fitted(name)
    assert set(fit.gemm) <= GEMM_KEYS
    assert set(fit.sustained) <= set(catalog.gpu(name).peak_tflops)
    groups = {key.partition("_stride_")[0] for key in fit.collectives}
    sizes = {key.rpartition("_")[2] for key in groups}
    assert {key.rpartition("_")[0] for key in groups} <= COLLECTIVES
    assert sizes <= {"2", "4", "8"}


@pytest.mark.parametrize("name", NAMES)
def test_no_collective_is_much_faster_than_its_link(name):
    """In-switch reduction lets an all-reduce exceed one link a little, nothing else does."""
    link = catalog.gpu(name).link_gb_per_s.value
    for key, fit in catalog.fitted(name).collectives.items():
        assert fit.bus_gb_per_s <= link * (1.15 if key.startswith("all_reduce") else 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_sustained_speed_stays_below_peak(name):
    fit = catalog.fitted(name)
    for precision, number in fit.sustained.items():
        low = precision in {"fp8", "mxfp8", "nvfp4"}
        gemm = fit.gemm.get("fp8_training" if low else "bf16")
        if gemm is not None:
            assert number.value / gemm.flop_factor < 1


@pytest.mark.parametrize(("name", "most"), [("b200", 6e15), ("b300", 7e15), ("gb300", 8e15)])
def test_products_in_four_bits_run_at_what_their_kernels_reach(name, most):
    """Kernels of inference frameworks pass 6 to 7 PFLOP/s, of a peak of 9 to 15."""
    rate = machine_of(parse_cluster(f"1x8:{name}"), "nvfp4").linear
    assert 4.5e15 < rate.peak_flop_per_second / rate.flop_factor < most


@pytest.mark.parametrize("name", NAMES)
def test_stand_ins_are_of_the_same_vendor_and_end(name):
    names = chain(name)
    assert len(set(names)) == len(names)
    for one, other in pairwise(names):
        assert catalog.gpu(one).vendor == catalog.gpu(other).vendor
        assert catalog.fitted(other) != FittedConstants()


@pytest.mark.parametrize("name", [n for n in NAMES if catalog.gpu(n).vendor == "nvidia"])
def test_every_nvidia_gpu_reaches_matrix_product_and_attention_constants(name):
    fits = [catalog.fitted(other) for other in chain(name)]
    assert any("bf16" in fit.gemm for fit in fits)
    assert any(fit.attention for fit in fits)


@pytest.mark.parametrize("name", ["mi250x", "mi300x", "mi355x", "gaudi3"])
def test_other_vendors_have_no_stand_in(name):
    assert catalog.stand_in(name) is None


def test_an_announced_gpu_is_priced_from_figures_that_may_change():
    machine = machine_of(parse_cluster("64x4:vr200"), "nvfp4")
    (datasheet,) = [p for p in machine.provenance if p.quantity == "vr200 datasheet"]
    assert datasheet.kind == "assumed"
    assert "1,789 TFLOP/s" in datasheet.source
    stand_in = machine_of(parse_cluster("64x4:gb300"), "nvfp4")
    assert machine.linear.flop_factor == stand_in.linear.flop_factor
    assert machine.linear.peak_flop_per_second == 35e15
    assert [n for n in NAMES if catalog.gpu(n).announced] == ["vr200"]
