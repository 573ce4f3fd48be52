"""Requests as clients write them: a number of steps is a number."""

from pathlib import Path

from trainplan.cli.serve.command_line import command_line
from trainplan.cli.serve.requests import SearchRequest

JOB = {"model": "gpt2", "cluster": "1x8:h100-sxm", "global_batch_size": 8, "seq_length": 1024}


def test_steps_are_numbers_or_words():
    for given in (500, "500", "free"):
        words = {"allow": ["diloco"], "outer_every": given, "outer_overlap": given}
        request = SearchRequest.model_validate({**JOB, **words})
        line = command_line("search", request, {}, Path(), None)
        assert f"--outer-every={given}" in line
        assert f"--outer-overlap={given}" in line
