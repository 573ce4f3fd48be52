"""Settings of a launch of experts that are worth a change, and the release that each needs."""

import re

import pytest

from trainplan.costmodel.catalog import Release
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.runtimes.traits.needs import ANYWHERE
from trainplan.planner.launch_checks.changed import Run, setting_changes, with_options
from trainplan.planner.launch_checks.edits import WORTH
from trainplan.planner.launch_checks.lints import lints
from trainplan.planner.launch_checks.notes import edit_notes
from trainplan.planner.questions import estimate
from trainplan.planner.runtimes.megatron_lm.read.cores import since

LAYOUT = Layout(dp=16, ep=16, zero_stage=1)
PIPELINED = {"pp": 2, "vpp": 2, "schedule": "interleaved", "zero_stage": 1}
LAYOUTS = (
    LAYOUT,
    Layout(dp=4, cp=2, **PIPELINED),
    Layout(tp=2, dp=4, ep=4, sequence_parallel=True, **PIPELINED),
)


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


@pytest.mark.parametrize("text", ["moe_dispatcher=deepep", "cuda_graph=partial"])
def test_a_release_without_the_words_of_an_edit_does_not_have_it(run, text):
    """Core 0.14 has DeepEP and graphs by other options than those that an edit writes."""
    job = run.job.model_copy(update={"release": "core 0.14"})
    changed = Run(with_options(job, dict([text.split("=")])), LAYOUT)
    first = next(iter(edit_notes(Run(job, LAYOUT), changed)))
    assert first.endswith(": the launch has only 0.14")


def test_no_setting_needs_less_than_the_words_that_write_it(make_job):
    own = RUNTIMES["megatron-lm"]
    seen = set()
    for model in ("small-dense", "qwen3-30b-a3b"):
        job = make_job(model, "2x8:h100-sxm", 64, 4096)
        for layout in LAYOUTS:
            plain = Run(job, layout)
            for one in (*own.settings, *own.stated):
                changed = Run(with_options(job, {one.name: one.value}), layout)
                words = setting_changes(plain, changed)
                least = max((since(w.name) for w in words if w.after is not None), default=0)
                needs = own.needs_of(changed.job.options).get(one.text, ANYWHERE)
                stated = re.search(r"0\.(\d+)", needs.release)
                assert int(stated[1] if stated else 0) >= least, one.text
                seen |= {one.text} if least else set()
    assert {"moe_dispatcher=deepep", "cuda_graph=partial", "cp_comm_type=a2a"} <= seen


@pytest.mark.parametrize(
    ("name", "core"),
    [("core 0.12", 12), ("nemo:26.04.01", 17), ("25.04", None), ("nightly", None), (None, None)],
)
def test_a_name_states_a_core_or_none(name, core):
    """No container before those of the table is known by its month."""
    assert Release.core_of(name) == core
