"""Plans that a search answers, of each trainer: pp x vpp x uneven x schedule, as counted.

What is tested is what a search gives, not layouts that were chosen: of every cell the pipelines.
"""

from importlib.util import find_spec

import pytest

from tests.grids import some_cases
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.space import parse_choice
from trainplan.planner.verification import combinations, of_torch, verify
from trainplan.profiler.train import CountedRuns, Trainers, refusing

pytest.importorskip("torch", "2.13", reason="the trainers need torch: '.[train]'")
SECONDS = 120.0
PIPELINES = {
    "torchtitan 1f1b": ("torchtitan", "schedule=1f1b"),
    "torchtitan interleaved": ("torchtitan", "schedule=interleaved", "vpp=2"),
    "torchtitan interleaved, deep": ("torchtitan", "schedule=interleaved", "vpp=4"),
    "torchtitan zb-v": ("torchtitan", "schedule=zb-v"),
    "torchtitan zb-h1": ("torchtitan", "schedule=zb-h1", "vpp=1"),
    "torchtitan zb-h1, virtual stages": ("torchtitan", "schedule=zb-h1", "vpp=2"),
    "torchtitan zb-h2": ("torchtitan", "schedule=zb-h2"),
    "torchtitan gpipe": ("torchtitan", "schedule=gpipe"),
    "torchtitan dualpipe-v": ("torchtitan", "schedule=dualpipe-v"),
    "megatron-lm 1f1b": ("megatron-lm", "vpp=1"),
    "megatron-lm interleaved": ("megatron-lm", "vpp=2"),
    "megatron-bridge interleaved": ("megatron-bridge", "vpp=4"),
}
STAGES = {"even": ("stages=even",), "as searched": ()}
RECOMPUTE = {"none": ("recompute=none",), "full": ("recompute=full",)}


@pytest.fixture(scope="module")
def verified(make_job):
    """Searches and runs the pipelines of the answer; each trainer is started once."""
    started = {}

    def run(runtime, choices, nproc):
        fix = tuple(parse_choice(text, excluded=False) for text in choices)
        job = make_job("llama3-8b", "2x8:h200-sxm", 64).model_copy(update={"runtime": runtime})
        plan = search(job, SearchOptions(top=1, fix=fix, search_options="none"))
        assert isinstance(plan, Plan), plan
        trainer = "torch" if of_torch(job) else "megatron-core"
        if trainer != "torch" and find_spec("megatron") is None:
            pytest.skip("needs megatron-core: '.[train]'")
        if trainer not in started:
            started[trainer] = Trainers(trainer)
            started[trainer].__enter__()
        wanted = combinations(plan.job, plan.best.layout, nproc, refusing(trainer))
        pipelines = [one for one in wanted.others if one.layout.pp > 1]
        assert pipelines
        return verify(wanted.reference, pipelines, CountedRuns(started[trainer], 1, SECONDS))

    yield run
    for one in started.values():
        one.__exit__()


@pytest.mark.grid
@pytest.mark.parametrize("nproc", [2, 4])
@pytest.mark.parametrize("recompute", RECOMPUTE)
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("pipeline", some_cases(PIPELINES, 6))
def test_a_searched_pipeline_holds_sends_and_keeps_what_is_counted(
    verified, pipeline, stages, recompute, nproc
):
    runtime, *fixed = PIPELINES[pipeline]
    choices = (*fixed, *STAGES[stages], *RECOMPUTE[recompute], f"pp={nproc}", "tp=1")
    for one in verified(runtime, choices, nproc):
        assert one.failure == ""
        assert one.found.loss_difference < one.found.tolerance
        assert one.found.wrong_parameters == one.found.wrong_sent == one.found.wrong_saved == ()
