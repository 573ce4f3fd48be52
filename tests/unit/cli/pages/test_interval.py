"""A page says whose errors the interval beside a step is of."""

import pytest

from trainplan.cli.pages.parts.evidence import interval_lines
from trainplan.costmodel import catalog
from trainplan.costmodel.uncertainty.intervals import Interval


def says(job, regime):
    return list(interval_lines(job, Interval(0.8, regime, 1.0, 2.0)))


def test_of_measured_machines_it_counts_the_runs_like_it(make_job):
    name, known = next(
        (name, one)
        for name, one in catalog.intervals().regimes.items()
        if name.startswith("h100-sxm bf16") and name.endswith("mixture_of_experts")
    )
    [line] = says(make_job("small-moe", "1x8:h100-sxm"), name)
    assert line.startswith(f"Interval: of {known.runs} scored run")
    assert f"of {known.sources} source" in line
    assert f"(h100-sxm, 16 bits, {name.split()[2]}, mixture of experts)" in line


@pytest.mark.parametrize(
    ("cluster", "regime", "why"),
    [
        ("1x8:h100-sxm", "unseen dense", "it is as of sources that no fit saw"),
        (
            "1x8:a100-pcie-40gb",
            "stand_in dense",
            "matrix products and attention of a100-pcie-40gb are taken from a similar GPU",
        ),
        (
            "1x8:mi300x",
            "assumed dense",
            "collectives of mi300x are assumed",
        ),
        (
            "1x8:mi300x+1x8:h100-sxm",
            "assumed dense",
            "collectives of mi300x are assumed",
        ),
    ],
)
def test_of_others_it_says_which_numbers_are_not_measured(make_job, cluster, regime, why):
    job = make_job("small-dense", cluster)
    gpus = " and ".join(sorted(group.gpu for group in job.cluster.groups))
    assert says(job, regime) == [
        f"Interval: no scored run of this kind is on {gpus} in bf16 under megatron-lm; {why}."
    ]


def test_of_a_calibrated_machine_it_is_of_corrected_runs(make_job):
    [line] = says(make_job("small-dense", "1x8:h100-sxm"), "calibrated_dense")
    assert "after one step of their family" in line


def test_of_a_plan_with_regimes_of_another_release_it_says_nothing(make_job):
    assert says(make_job("small-dense", "1x8:h100-sxm"), "h900 fp2 someone's dense") == []


def test_a_short_page_says_it_only_where_numbers_are_not_measured(make_job):
    job, interval = make_job("small-dense", "1x8:mi300x"), Interval(0.8, "assumed dense", 1.0, 2.0)
    assert list(interval_lines(job, interval, verbose=False)) == says(job, "assumed dense")
    unseen = Interval(0.8, "unseen dense", 1.0, 2.0)
    assert list(interval_lines(job, unseen, verbose=False)) == []
