"""Settings of a launch of experts that are worth a change, and the release that each needs."""

import pytest

from trainplan.costmodel.catalog import Release
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launch_checks.changed import Run, with_options
from trainplan.planner.launch_checks.edits import WORTH
from trainplan.planner.launch_checks.lints import lints
from trainplan.planner.launch_checks.notes import edit_notes
from trainplan.planner.questions import estimate

LAYOUT = Layout(dp=16, ep=16, zero_stage=1)


@pytest.fixture(scope="module", name="run")
def experts(make_job):
    return Run(make_job("qwen3-30b-a3b", "2x8:h100-sxm", 64, 4096), LAYOUT)


def test_each_setting_of_experts_has_what_it_saves_alone(run):
    own = estimate(run.job, run.layout)
    found = {one.name: one for one in lints(run, own)}
    assert {"moe_dispatcher", "overlap_moe_a2a"} <= found.keys()
    assert found.keys().isdisjoint({"moment_dtype", "gradient_dtype"})
    changed = with_options(run.job, {"overlap_moe_a2a": True})
    saved = own.step_time_s - estimate(changed, run.layout).step_time_s
    assert found["overlap_moe_a2a"].saved_s == pytest.approx(saved)
    assert saved > WORTH * own.step_time_s
    (setting,) = found["overlap_moe_a2a"].settings
    assert setting.name == "--overlap-moe-expert-parallel-comm"


def test_a_dense_launch_has_none_of_them(make_job):
    run = Run(make_job("small-dense", "1x8:h100-sxm", 32), Layout(dp=8, zero_stage=1))
    names = {one.name for one in lints(run, estimate(run.job, run.layout))}
    assert names.isdisjoint({"moe_dispatcher", "overlap_moe_a2a", "cuda_graph"})


@pytest.mark.parametrize(
    ("release", "says"),
    [
        (None, "not known whether the launch has it"),
        ("nightly", "not known whether the launch has it"),
        ("core 0.12", "the launch has only 0.12"),
        ("26.04", "the launch has 0.17"),
    ],
)
def test_the_release_is_there_is_not_there_or_is_not_known(run, release, says):
    job = run.job.model_copy(update={"release": release})
    changed = Run(with_options(job, {"moe_dispatcher": "hybridep"}), LAYOUT)
    first, *others = edit_notes(Run(job, LAYOUT), changed)
    least = "0.16 (or the container 25.11)"
    assert first.startswith(f"moe_dispatcher=hybridep needs Megatron Core {least}: {says}")
    assert all(one.startswith("extrapolated: ") for one in others)


@pytest.mark.parametrize(
    ("name", "core"),
    [("core 0.12", 12), ("nemo:26.04.01", 17), ("25.04", None), ("nightly", None), (None, None)],
)
def test_a_name_states_a_core_or_none(name, core):
    """No container before those of the table is known by its month."""
    assert Release.core_of(name) == core
