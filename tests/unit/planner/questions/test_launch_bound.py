"""What is said of layer passes that wait for the host."""

import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.planner.questions.best_plan import notes
from trainplan.planner.questions.launch_bound import GRAPHS


@pytest.fixture(name="written")
def _written(make_job):
    def written(model="small-moe", runtime="megatron-lm", **options):
        job = make_job(model, "1x8:h100-sxm", 16)
        changes = {"runtime": runtime, "options": RuntimeOptions(**options)}
        found = notes(job.model_copy(update=changes))
        return [note for note in found if "eager launches" in note]

    return written


def test_graphs_are_named_where_the_runtime_has_them(written):
    assert GRAPHS in written()[0]
    assert not written("small-dense")


def test_graphs_that_are_set_are_not_recommended(written):
    assert written(cuda_graph="partial") == []


@pytest.mark.parametrize("runtime", ["torchtitan", "nanotron"])
def test_a_switch_of_another_runtime_is_not_recommended(written, runtime):
    (note,) = written(runtime=runtime)
    assert GRAPHS not in note
