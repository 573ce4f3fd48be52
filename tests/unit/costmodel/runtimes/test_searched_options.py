"""Every option that changes a price is searched, or stands with a reason, or is refused."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes.options import CHOSEN, UNSEARCHED
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.runtimes.traits.settings import NEVER_FASTER
from trainplan.planner.questions.estimation import check_model, estimates
from trainplan.planner.space.choices import broken_rules

VALUES = {
    "moe_chunks": (1, 2, 4, 8),
    "cuda_graph": ("none", "partial", "full_iteration"),
    "moe_dispatcher": ("alltoall", "allgather", "deepep", "hybridep", "ncclep", "hierarchical"),
    "cp_comm_type": ("p2p", "a2a", "all_gather"),
    "microbatch_group_size": ("least", "double"),
}
"""Of options that are no switches."""
SHARDS = [
    *({"dp": 16, "zero_stage": zero, "ep": ep} for zero in (0, 1, 2, 3) for ep in (1, 8)),
    *(
        {"dp": 16, "zero_stage": 3, "offload": {"optimizer": 1.0, "parameters": tier}}
        for tier in ("cpu", "nvme")
    ),
    *({"dp": 16, "zero_stage": zero, "offload": {"optimizer": 1.0}} for zero in (2, 3)),
]
CUTS = [
    *({"dp": 8, "cp": 2, "zero_stage": zero, "ep": ep} for zero in (1, 3) for ep in (1, 8)),
    *(
        {"dp": 8, "tp": 2, "sequence_parallel": True, "zero_stage": zero, "ep": ep, "etp": etp}
        for zero in (1, 3)
        for ep, etp in ((1, 1), (8, 1), (1, 2))
    ),
    {"dp": 8, "tp": 2},
]
STAGES = [
    {"dp": 8, "pp": 2, "zero_stage": zero, "ep": ep, "vpp": vpp, "schedule": schedule}
    for zero in (0, 1)
    for ep in (1, 8)
    for vpp, schedule in ((1, "1f1b"), (3, "interleaved"), (1, "zb-1p"))
]
LAYOUTS = LayoutTable.of([Layout(**one) for one in (*SHARDS, *CUTS, *STAGES)])


def values(name):
    return VALUES.get(name, (True, False))


def prices(job, rows):
    """Seconds and bytes of layouts; infinite where the job does not allow one."""
    found = np.full((2, len(LAYOUTS)), np.inf)
    broken = broken_rules(job, LAYOUTS)
    legal = [row for row in rows if not broken[row]]
    priced = estimates(job, LAYOUTS.take(np.array(legal, dtype=np.int64)))
    found[:, legal] = priced.step_time_s, priced.peak_reserved_bytes
    return found


def test_every_option_is_one_that_a_search_may_choose_or_has_a_reason():
    assert not CHOSEN.keys() & UNSEARCHED.keys()
    assert CHOSEN.keys() | UNSEARCHED.keys() == RuntimeOptions.model_fields.keys()


def test_every_declared_setting_is_an_option_that_keeps_numbers_or_is_opt_in():
    for traits in RUNTIMES.values():
        assert all(one.name in CHOSEN for one in traits.stated)
        assert all(one.name in CHOSEN or one.level == "all" for one in traits.settings)


@pytest.fixture(scope="module", name="job_of")
def jobs(make_job):
    def job(runtime, model, **options):
        made = make_job(model, "2x8:h100-sxm")
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


@pytest.mark.grid
@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_value_that_moves_a_price_is_searched_or_has_a_reason_or_is_refused(
    job_of, runtime, model
):
    plain, traits = job_of(runtime, model), RUNTIMES[runtime]
    searched = {(one.name, one.value) for one in traits.settings}
    stated = {(one.name, one.value): one.why for one in traits.stated}
    legal = [row for row, broken in enumerate(broken_rules(plain, LAYOUTS)) if not broken]
    before = prices(plain, legal)
    for name in CHOSEN:
        for value in values(name):
            job = job_of(runtime, model, **{name: value})
            if (name, value) in searched:
                check_model(job)
                continue
            try:
                check_model(job)
            except SpecError as error:
                assert name in str(error)
                assert "\n" not in str(error)
                continue
            after = prices(job, legal)
            after = np.where(np.isinf(after), before, after)  # a rule refuses the layout
            why = stated.get((name, value), "")
            if why == NEVER_FASTER:
                assert (after >= before * (1 - 1e-12)).all(), (name, value)
            elif not why:
                assert after == pytest.approx(before, rel=1e-12), (name, value)


@pytest.mark.parametrize(
    ("runtime", "options", "says"),
    [
        ("torchtitan", {"overlap_moe_a2a": True}, "leave the option out"),
        ("nemo", {"moe_dispatcher": "hybridep"}, "use alltoall or deepep or allgather, or leave"),
        (
            "megatron-lm",
            {"moe_dispatcher": "hierarchical"},
            "moe_dispatcher=hierarchical: megatron",
        ),
        ("torchtitan", {"moe_dispatcher": "allgather"}, "use alltoall or hybridep or deepep"),
        ("megatron-zero-bubble", {"overlap_tp_comm": True}, "overlap_tp_comm=true"),
    ],
)
def test_a_value_a_runtime_does_not_run_with_is_refused(job_of, runtime, options, says):
    with pytest.raises(SpecError, match=says):
        check_model(job_of(runtime, "small-moe", **options))
