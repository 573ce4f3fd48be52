"""A search goes on with uneven stages, and says what of them is proven."""

import pytest

from costmodel.errors import SpecError
from planner.answer import SearchOptions, search
from planner.constraints import parse_choice


class Spent:
    """No time is left."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def spent(self) -> bool:
        self.calls -= 1
        return self.calls < 0

    def seconds_left(self) -> float:
        return 0.0 if self.calls < 0 else 1.0

    def report(self, done: float, bound_s: float) -> None:
        """Nobody listens."""


@pytest.fixture
def job(make_job):
    """Four layers and a large vocabulary: the last of two even stages takes longer."""
    job = make_job("small-dense", "1x8:h100-sxm", 8)
    model = job.model.model_copy(update={"vocab_size": 512_000, "num_hidden_layers": 6})
    return job.model_copy(update={"model": model})


PIPELINE = tuple(parse_choice(text, excluded=False) for text in ("pp=2", "vpp=1"))


def test_stages_follow_the_work_where_the_head_is_heavy(job):
    free = search(job, SearchOptions(fix=PIPELINE))
    even = search(job, SearchOptions(fix=(*PIPELINE, parse_choice("stages=even", excluded=False))))
    stages = free.best.layout.stages
    assert stages is not None
    assert stages[0].layers > stages[1].layers
    assert free.best.estimate.step_time_s < even.best.estimate.step_time_s
    proof = free.certificate.uneven_stages
    assert proof.even_step_time_s == pytest.approx(even.best.estimate.step_time_s)
    assert free.certificate.lower_bound_s <= free.best.estimate.step_time_s
    assert even.certificate.uneven_stages is None


def test_no_proof_of_uneven_stages_is_claimed_where_the_time_was_spent_on_even_ones(job):
    whole = search(job, SearchOptions(fix=PIPELINE))
    for calls in range(1, 400):
        try:
            plan = search(job, SearchOptions(fix=PIPELINE), Spent(calls))
        except SpecError:  # too early for any answer
            continue
        assert plan.certificate.lower_bound_s <= whole.best.estimate.step_time_s * (1 + 1e-9)
        if plan.certificate.alternatives_complete:
            break
    assert plan.certificate.uneven_stages is not None
