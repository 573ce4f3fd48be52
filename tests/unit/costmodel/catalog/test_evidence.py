import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import CatalogError
from trainplan.costmodel.catalog import evidence
from trainplan.costmodel.catalog.evidence import Evidence, evidence_of
from trainplan.costmodel.hardware.gpu import FittedConstants


def test_a_gpu_with_fits_and_a_fitted_loop_is_measured():
    assert evidence_of("h100-sxm", "bf16") == Evidence("measured", "measured", "measured")
    assert evidence_of("h100-sxm", "fp16") == evidence_of("h100-sxm", "bf16")


def test_products_are_no_better_known_than_their_speed_in_a_training_loop():
    assert "bf16" in catalog.fitted("l40s").gemm
    assert evidence_of("l40s", "bf16").products == "stand-in"


def test_a_relative_stands_in_for_collectives_over_the_same_link_alone():
    assert evidence_of("h800-sxm", "bf16").products == "stand-in"
    assert evidence_of("a100-pcie-80gb", "bf16").attention == "stand-in"
    assert evidence_of("a100-pcie-80gb", "bf16").collectives == "assumed"


def test_a_fit_that_is_assumed_says_so(monkeypatch: pytest.MonkeyPatch):
    known = catalog.fitted("h100-sxm")
    assert known.attention
    guessed = known.model_copy(
        update={"attention": known.attention.model_copy(update={"kind": "assumed"})}
    )
    monkeypatch.setattr(evidence.catalog, "fitted", lambda _: guessed)
    assert evidence_of("h100-sxm", "bf16") == Evidence("measured", "assumed", "measured")
    assert evidence_of("h100-sxm", "bf16").weakest == "assumed"


def test_products_in_four_bits_rest_on_fits_of_their_own(monkeypatch: pytest.MonkeyPatch):
    known = catalog.fitted("b200")
    assert evidence_of("b200", "nvfp4").products == "measured"
    gemm = dict(known.gemm)
    gemm["nvfp4_training"] = gemm["nvfp4_training"].model_copy(update={"kind": "assumed"})
    guessed = known.model_copy(update={"gemm": gemm})
    monkeypatch.setattr(evidence.catalog, "fitted", lambda _: guessed)
    assert evidence_of("b200", "nvfp4").products == "assumed"
    assert evidence_of("b200", "mxfp8").products == "measured"


def test_amd_gpus_rest_on_numbers_of_their_own_and_say_which_are_assumed():
    assert evidence_of("mi300x", "bf16") == Evidence("measured", "measured", "assumed")
    assert catalog.fitted("mi300x").gemm["bf16"].kind == "measured"
    assert catalog.fitted("mi300x").sustained["bf16"].sources, "training runs were seen"
    assert evidence_of("mi325x", "bf16").attention == "stand-in"
    assert evidence_of("mi250x", "bf16") == Evidence("assumed", "assumed", "assumed")


def test_a_stand_in_is_no_better_than_what_it_brings():
    assert evidence_of("mi355x", "bf16").products == "stand-in"
    assert evidence_of("mi350x", "bf16").products == "stand-in"
    assert evidence_of("mi350x", "bf16").attention == "stand-in"


def test_a_speed_inferred_from_relatives_is_a_stand_in():
    assert catalog.fitted("gb300").sustained["bf16"].kind == "stand-in"
    assert evidence_of("gb300", "bf16").products == "stand-in"


def test_a_chip_at_another_power_has_no_speed_of_its_own():
    for name in ("b300", "h100-sxm-96gb-500w", "mi350x"):
        assert not catalog.fitted(name).sustained
        assert evidence_of(name, "fp8").products in ("stand-in", "assumed")


def test_pcie_cards_without_peer_access_take_no_single_host_for_all():
    eight = catalog.fitted("l40s").collectives["all_reduce_8"]
    assert eight.kind == "assumed"
    assert eight.bus_gb_per_s > 10
    assert evidence_of("l40s", "bf16").collectives == "assumed"
    assert evidence_of("l4", "bf16").collectives == "measured", "its host was measured"


def test_what_nobody_measured_and_nothing_stands_in_for_is_assumed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(evidence.catalog, "fitted", lambda _: FittedConstants())
    assert evidence_of("h100-sxm", "fp8") == Evidence("assumed", "assumed", "assumed")


def test_an_unknown_gpu_is_refused_by_name():
    with pytest.raises(CatalogError, match="unknown GPU"):
        evidence_of("h101", "bf16")
