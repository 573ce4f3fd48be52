"""How far a step time may be off: widths and regimes, by hand."""

from math import exp

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.machine.uncertainty import (
    kind_of_run,
    regime,
    step_time_interval,
)


@pytest.mark.parametrize(
    ("model", "host_share", "kind"),
    [
        ("small-dense", 0.04, "dense"),
        ("small-dense", 0.10, "launch_bound"),
        ("small-moe", 0.10, "mixture_of_experts"),
    ],
)
def test_a_dense_run_that_waits_for_its_host_is_a_kind_of_its_own(
    make_job, model, host_share, kind
):
    job = make_job(model, "1x8:h100-sxm")
    assert kind_of_run(job, host_share) == regime(job, host_share) == kind
    unseen = make_job(model, "1x8:h100-sxm", precision="tf32")
    assert regime(unseen, host_share) == f"unseen_{kind.replace('launch_bound', 'dense')}"


def test_an_interval_is_as_wide_as_the_errors_of_runs_like_it(make_job):
    job = make_job("small-dense", "1x8:h100-sxm")
    widths = catalog.intervals().regimes
    found = step_time_interval(job, 2.0, 0.5, calibrated=False)
    assert found.regime == "launch_bound"
    assert found.step_time_high_s == pytest.approx(2.0 * exp(widths["launch_bound"].half_width))
    assert found.step_time_low_s * found.step_time_high_s == pytest.approx(2.0**2)
    after = step_time_interval(job, 2.0, 0.5, calibrated=True)
    least = min(widths[kind].half_width for kind in ("launch_bound", "calibrated_dense"))
    assert after.step_time_high_s == pytest.approx(2.0 * exp(least))
