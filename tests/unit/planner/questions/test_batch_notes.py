"""A batch that does not divide by an odd factor of the GPUs is named, with batches that do."""

import re

import pytest

from trainplan.cli.pages.parts.headline import estimate_line
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions.batch_notes import batch_notes
from trainplan.planner.questions.estimation import estimate


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 6, 9, 12, 27])
@pytest.mark.parametrize("batch", [1, 2, 40, 72, 128, 1024, 15_360])
def test_every_batch_that_is_named_divides_by_the_factor(make_job, nodes, batch):
    job = make_job("llama3-8b", f"{nodes}x8:h100-sxm", batch)
    factor = nodes // (nodes & -nodes)
    notes = list(batch_notes(job))
    assert bool(notes) == (batch % factor != 0)
    for note in notes:
        named = re.findall(r"[\d,]+", note.partition("must: ")[2])
        sizes = [int(one.replace(",", "")) for one in named]
        assert sizes
        assert all(size % factor == 0 for size in sizes)
        assert min(sizes) <= batch <= max(sizes) or batch < factor


@pytest.mark.parametrize(("precision", "peak"), [("bf16", ""), ("fp8", " of the fp8 peak")])
def test_a_utilization_names_the_peak_it_is_of_where_it_is_not_that_of_16_bits(
    make_job, precision, peak
):
    job = make_job("llama3-8b", "1x8:h100-sxm", 32)
    training = job.training.model_copy(update={"precision": precision})
    job = job.model_copy(update={"training": training})
    layout = Layout(tp=4, dp=2, sequence_parallel=True)
    assert re.search(rf"MFU [\d.]+ %{peak} · ", estimate_line(estimate(job, layout), job))
