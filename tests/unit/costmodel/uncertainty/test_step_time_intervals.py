"""How far a step time may be off: regimes and their ends, by hand."""

from dataclasses import replace
from math import exp
from typing import get_args

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.catalog.evidence import Evidence
from trainplan.costmodel.documents.constants import Intervals, IntervalWidth, Peaks
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.uncertainty import intervals as uncertainty
from trainplan.costmodel.uncertainty.intervals import (
    UNMEASURED,
    Kind,
    kind_of_run,
    names_of_runs,
    regimes,
    seen,
    step_time_interval,
)

WIDTHS = {
    "h100-sxm bf16 megatron-lm dense": 0.2,
    "a100-sxm-80gb bf16 megatron-lm dense": 0.3,
    "calibrated_dense": 0.06,
    "calibrated_mixture_of_experts": 0.4,
    "unseen dense": 0.21,
    "unseen fsdp": 0.22,
    "unseen mixture_of_experts": 0.23,
    "stand_in dense": 0.25,
    "assumed dense": 0.35,
}


@pytest.fixture
def known(monkeypatch):
    """Widths that no later fit moves."""
    found = Intervals(
        comparison=IntervalWidth(half_width=0.1, runs=9, sources=2),
        widened=1.0,
        left_out=0.8,
        regimes={
            name: IntervalWidth(half_width=width, runs=9, sources=2)
            for name, width in WIDTHS.items()
        },
        peaks=Peaks(widened=1.0, left_out=0.85, libraries=(), scales={"no peaks": 0.05}),
    )
    monkeypatch.setattr(uncertainty.catalog, "intervals", lambda: found)


def machine(job):
    return machine_of(job.cluster, job.training.precision)


def interval(job, kind="dense", **changes):
    return step_time_interval(job, replace(machine(job), **changes), 2.0, kind)


@pytest.mark.parametrize(
    ("model", "known", "kind"),
    [
        ("small-dense", ("none", 1, 0.04), "dense"),
        ("small-dense", ("none", 1, 0.10), "launch_bound"),
        ("small-dense", ("none", 2, 0.10), "fsdp"),
        ("small-moe", ("none", 3, 0.10), "mixture_of_experts"),
        ("small-moe", ("partial", 1, 0.10), "graphs"),
        ("small-dense", ("full_iteration", 3, 0.10), "graphs"),
    ],
)
def test_the_kind_of_a_run_is_the_first_that_fits(make_job, model, known, kind):
    assert kind_of_run(make_job(model, "1x8:h100-sxm"), *known) == kind


@pytest.mark.usefixtures("known")
def test_an_interval_lies_where_the_errors_of_runs_like_it_do(make_job):
    found = interval(make_job("small-dense", "1x8:h100-sxm"))
    assert found.regime == "h100-sxm bf16 megatron-lm dense"
    assert found.step_time_low_s == pytest.approx(2 * exp(-0.2))
    assert found.step_time_high_s == pytest.approx(2 * exp(0.2))


@pytest.mark.usefixtures("known")
def test_16_bits_are_one_regime_and_kinds_are_several(make_job):
    half = make_job("small-dense", "1x8:h100-sxm", precision="fp16")
    assert interval(half).regime == "h100-sxm bf16 megatron-lm dense"
    assert interval(half, "fsdp").regime == "unseen fsdp"


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("weakest", "regime"),
    [("measured", "unseen"), ("stand-in", "stand_in"), ("assumed", "assumed")],
)
def test_without_runs_like_it_an_interval_follows_what_the_gpu_rests_on(
    make_job, monkeypatch, weakest, regime
):
    known = Evidence("measured", weakest, "measured")
    monkeypatch.setattr(uncertainty, "evidence_of", lambda gpu, precision: known)
    assert interval(make_job("small-dense", "1x8:b200")).regime == f"{regime} dense"


@pytest.mark.usefixtures("known")
def test_a_device_that_nobody_knows_is_assumed_until_a_profile_measures_it(make_job):
    job = make_job("small-dense", "1x8:h100-sxm")
    [group] = job.cluster.groups
    group = group.model_copy(update={"gpu": "mine", "device": catalog.device(group)})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    assert interval(job).regime == "assumed dense"
    provenance = tuple(replace(one, kind="measured") for one in machine(job).provenance)
    assert interval(job, provenance=provenance).regime == "unseen dense"


@pytest.mark.usefixtures("known")
def test_machines_and_software_are_seen_whatever_the_kind_of_run(make_job):
    assert seen(make_job("small-moe", "1x8:h100-sxm"))
    assert seen(make_job("small-dense", "1x8:h100-sxm+1x8:a100-sxm-80gb", precision="fp16"))
    assert not seen(make_job("small-dense", "1x8:h100-sxm+1x8:h200-sxm"))
    assert not seen(make_job("small-dense", "1x8:h100-sxm", precision="tf32"))


@pytest.mark.usefixtures("known")
def test_of_unlike_groups_the_one_that_is_known_least_counts(make_job):
    job = make_job("small-dense", "1x8:h100-sxm+1x8:a100-sxm-80gb")
    assert len(regimes(job, machine(job), "dense")) == 2
    assert interval(job).regime == "a100-sxm-80gb bf16 megatron-lm dense"


@pytest.mark.usefixtures("known")
def test_measured_steps_never_make_an_interval_wider(make_job):
    after = interval(make_job("small-dense", "1x8:h100-sxm"), calibrated=True)
    assert after.regime == "calibrated_dense"
    assert after.step_time_high_s == pytest.approx(2 * exp(0.06))
    experts = make_job("small-moe", "1x8:h100-sxm")
    assert (
        interval(experts, "mixture_of_experts", calibrated=True).regime
        == "unseen mixture_of_experts"
    )


def test_the_catalog_has_every_regime_there_may_be_and_worse_evidence_is_never_narrower():
    known = catalog.intervals().regimes
    assert {"calibrated_dense", "calibrated_mixture_of_experts"} < set(known)
    for kind in get_args(Kind):
        widths = [known[f"{name} {kind}"].half_width for name in UNMEASURED]
        assert widths == sorted(widths)
        assert all(
            one.half_width >= 0.5 * widths[0]
            for name, one in known.items()
            if name.endswith(f" {kind}") and one.sources == 1
        )


def test_runs_of_one_library_are_evidence_for_every_runtime_that_trains_its_layers(make_job):
    known = catalog.intervals()
    assert known.libraries == {name: one.library for name, one in RUNTIMES.items() if one.library}
    job = make_job("small-dense", "8x8:h100-sxm").model_copy(update={"runtime": "nemo"})
    other = job.model_copy(update={"runtime": "megatron-lm"})
    assert names_of_runs(job, "dense") == names_of_runs(other, "dense")
    assert names_of_runs(job, "dense")[0] in known.regimes
