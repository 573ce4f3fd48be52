"""The note on eager launches of experts has the host time with and without graphs."""

import re

from trainplan.costmodel.calibration import context_for
from trainplan.planner.questions.launch_bound import launch_bound_note


def test_graphs_are_named_with_the_host_time_that_they_leave(make_job):
    (text,) = launch_bound_note(context_for(make_job("qwen3-30b-a3b", "4x8:h100-sxm", 512, 4096)))
    eager, graphed = map(float, re.findall(r"([\d.]+) ms", text))
    assert 0 < graphed < eager
    assert "cuda_graph=partial" in text
    assert launch_bound_note(context_for(make_job("llama3-8b", "1x8:h100-sxm", 64, 4096))) == ()
