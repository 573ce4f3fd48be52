"""What starts in scale-up domains of more GPUs."""

import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case, with_domain
from trainplan.planner.explanations.changes import changes
from trainplan.planner.questions.best_plan import SearchOptions


@pytest.mark.parametrize(
    ("runtime", "dispatcher", "after", "says"),
    [
        ("megatron-lm", "deepep", "hybridep", ", with moe_dispatcher=hybridep"),
        ("megatron-bridge", "deepep", "hybridep", ", with moe_dispatcher=hybridep"),
        ("nemo", "deepep", None, ", with no moe_dispatcher=deepep"),
        ("megatron-lm", "hybridep", "hybridep", ""),
        ("megatron-lm", None, None, ""),
    ],
)
def test_deepep_gives_way_in_a_domain_that_it_does_not_know(
    make_job, runtime, dispatcher, after, says
):
    options = RuntimeOptions(moe_dispatcher=dispatcher)
    job = make_job("small-moe", "2x8:h100-sxm", 32)
    job = job.model_copy(update={"options": options, "runtime": runtime})
    case = Case(job, SearchOptions())
    grown = with_domain(case, 2)
    assert grown.context.machine.domain_gpus == 16
    assert grown.job.options.moe_dispatcher == after
    (one,) = (one for one in changes(case, Layout(dp=16, ep=16)) if one.name == "domain")
    assert one.text == f"scale-up domains of twice as many GPUs{says}"
