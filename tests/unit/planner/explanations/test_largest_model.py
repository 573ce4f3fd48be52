"""The deepest model of a shape: one that fits beside one that does not."""

from trainplan.planner.cases.case import Case
from trainplan.planner.cases.feasibility import feasible
from trainplan.planner.explanations.largest_model import MOST_LAYERS, largest_model
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.work.budget import Unlimited


def case_of(job):
    return Case(job, SearchOptions(search_options="none"))


def with_layers(job, layers):
    return job.model_copy(
        update={"model": job.model.model_copy(update={"num_hidden_layers": layers})}
    )


def with_memory(job, gib):
    group = job.cluster.groups[0].model_copy(update={"memory_gib": gib})
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})


def test_of_two_neighbours_one_fits_and_the_other_does_not(make_job):
    job = with_memory(make_job("small-dense", "1x2:h100-sxm", 8), 3)
    found = largest_model(case_of(job), Unlimited())
    assert job.model.num_hidden_layers < found.num_hidden_layers < MOST_LAYERS
    assert found.too_many_layers == found.num_hidden_layers + 1
    assert feasible(case_of(with_layers(job, found.num_hidden_layers)), Unlimited())
    assert not feasible(case_of(with_layers(job, found.too_many_layers)), Unlimited())


def test_more_memory_holds_a_deeper_model(make_job):
    job = make_job("small-dense", "1x1:h100-sxm", 8)
    small, large = (largest_model(case_of(with_memory(job, gib)), Unlimited()) for gib in (3, 6))
    assert small.num_hidden_layers < large.num_hidden_layers
    assert small.num_parameters < large.num_parameters


def test_a_model_of_several_kinds_of_layers_has_no_deeper_one(make_job):
    assert largest_model(case_of(make_job("small-moe", "1x2:h100-sxm", 8)), Unlimited()) is None
