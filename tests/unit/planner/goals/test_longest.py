"""The longest sequence that trains, and the ladder of what each technique adds."""

from dataclasses import replace

import pytest

from tests.budgets import Steps
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import NOTHING
from trainplan.costmodel.catalog.entries import HostSpec
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.limits import TIME_LIMIT, limit_of
from trainplan.planner.goals.longest import CLOSE, ladder, longest, steps
from trainplan.planner.goals.longest import NOTHING as ALONE
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

TILED = tuple(parse_choice(text, excluded=False) for text in ("tiled_loss=true", "tiled_mlp=true"))
"""Fewer layouts."""


def job_of(make_job, cluster="1x8:h100-sxm", runtime="deepspeed", model="llama3.1-8b"):
    return make_job(model, cluster, 1, 16).model_copy(update={"runtime": runtime})


def context_of(job, budget=None, **options):
    wanted = SearchOptions(objective="context", **options)
    return SearchContext.of(job, wanted, NOTHING, budget or Unlimited())


@pytest.fixture(scope="module")
def counted_found(make_job):
    """The longest sequence, and the lengths of all the searches for it."""
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch)
        return longest(context_of(job_of(make_job))), counted.lengths


@pytest.fixture(scope="module")
def found(counted_found):
    return counted_found[0]


@pytest.fixture(scope="module")
def plan(make_job):
    """The plan of the longest sequence, with the ladder to it."""
    return search(job_of(make_job), SearchOptions(objective="context", search_options="none"))


class Counted:
    """A search context that counts its searches."""

    def __init__(self, monkeypatch):
        self.lengths = []
        whole = SearchContext.search

        def counting(context, *some, **others):
            self.lengths.append(context.job.training.seq_length)
            return whole(context, *some, **others)

        monkeypatch.setattr(SearchContext, "search", counting)


def test_a_length_takes_fewer_than_twenty_searches(counted_found):
    found, lengths = counted_found
    assert len(lengths) < 20
    assert all(length % 16 == 0 for length in lengths)
    tokens = found.context.job.training.seq_length
    assert tokens in lengths
    assert tokens < found.too_long <= tokens * (1 + CLOSE) + 16
    assert found.too_long in lengths


def test_what_is_too_long_has_no_layout_and_what_trains_has_one(found):
    for tokens, trains in ((found.context.job.training.seq_length, True), (found.too_long, False)):
        training = found.context.job.training.model_copy(update={"seq_length": tokens})
        job = found.context.job.model_copy(update={"training": training})
        answer = search(job, SearchOptions(only_answer=True))
        assert isinstance(answer, Infeasible) != trains


def test_each_step_of_the_ladder_is_as_long_as_that_before(plan):
    rungs = plan.certificate.objective.ladder
    tokens = [rung.tokens for rung in rungs]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == len(tokens)
    assert tokens[-1] == plan.job.training.seq_length
    assert [rung.adds for rung in rungs] == [
        ALONE,
        "tiled loss",
        "sequence, tensor and pipeline parallelism",
        "tiled MLPs",
        "checkpoints in host memory",
        "optimizer and weights off the GPU",
    ]
    assert [rung.global_batch_size for rung in rungs] == [8, 8, 1, 1, 1, 1]
    assert {rung.limit for rung in rungs} == {"GPU memory"}


def test_techniques_that_are_fixed_or_that_a_runtime_lacks_are_no_steps(make_job):
    job = job_of(make_job, "1x2:h100-sxm")
    assert {"tiled loss", "tiled MLPs"} <= adds(context_of(job))
    for excluded, held in ((False, "fix"), (True, "exclude")):
        choices = (parse_choice("tiled_mlp=true", excluded=excluded),)
        assert adds(context_of(job)) - adds(context_of(job, **{held: choices})) == {"tiled MLPs"}
    other = job_of(make_job, "1x2:h100-sxm", "fms-fsdp", "small-dense")
    assert not adds(context_of(other)) & {"tiled loss", "tiled MLPs"}


def adds(context):
    """Names of the steps of a ladder."""
    return {name for name, _ in steps(context)}


def test_host_memory_is_named_where_checkpoints_fill_it(make_job):
    job = job_of(make_job, "1x4:h100-sxm")
    host = {"memory_gib": 200.0, "memory_gb_per_s": 200.0, "adam_params_per_s": 1e9}
    group = job.cluster.groups[0].model_copy(update={"host": HostSpec(**host)})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    rich = longest(context_of(job.model_copy(update={"cluster": cluster}), fix=TILED))
    assert limit_of(rich.context, rich.found, rich.too_long) == "host memory"
    checkpoints = 32 * 2 * 4096 * rich.context.job.training.seq_length
    assert 160 * 2**30 < checkpoints < 200 * 2**30


def test_a_search_for_the_longest_sequence_plans_it(plan):
    target = plan.certificate.objective
    assert (target.name, target.unit, target.limit) == ("context", "tokens", "GPU memory")
    assert target.value == plan.job.training.seq_length == target.ladder[-1].tokens
    assert plan.best.layout.cp == 8


def test_where_no_sequence_trains_the_answer_is_why(make_job):
    job = job_of(make_job, "1x1:h100-sxm", "megatron-lm", "llama3-70b")
    answer = search(job, SearchOptions(objective="context", only_answer=True))
    assert isinstance(answer, Infeasible)
    assert answer.refused["memory"] > 0


def test_given_lengths_are_refused(make_job):
    job = job_of(make_job)
    with pytest.raises(SpecError, match="leave out --lengths"):
        ladder(replace(context_of(job), job=with_lengths(job)))


def with_lengths(job):
    training = job.training.model_construct(**{**dict(job.training), "lengths": object()})
    return job.model_copy(update={"training": training})


def test_a_deadline_stops_sequences_that_take_too_long(make_job, plan):
    job = job_of(make_job)
    training = job.training.model_copy(update={"tokens": 10**8})
    job = job.model_copy(update={"training": training})
    bound = longest(context_of(job, deadline_days=1.0, fix=TILED))
    assert 0 < bound.tokens < plan.job.training.seq_length
    assert limit_of(bound.context, bound.found, bound.too_long) == "time"


def test_a_time_limit_is_what_stops_a_search_that_it_ends(make_job):
    _, rungs = ladder(context_of(job_of(make_job, "1x2:h100-sxm"), Steps(0)))
    assert rungs[-1].limit == "the time limit of this search"


def test_once_the_time_is_over_one_length_is_tried_and_the_steps_without_techniques_are_not(
    make_job, monkeypatch
):
    counted = Counted(monkeypatch)
    _, rungs = ladder(context_of(job_of(make_job), Steps(0)))
    assert len(counted.lengths) == 1
    assert {rung.limit for rung in rungs} == {TIME_LIMIT}
