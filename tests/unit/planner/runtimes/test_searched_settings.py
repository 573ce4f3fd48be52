"""What a search may set of a runtime, its exporter writes."""

import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.catalog.entries import CatalogError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.runtimes import EXPORTERS

LAYOUTS = [
    Layout(**one)
    for one in (
        {"dp": 8, "zero_stage": 1},
        {"dp": 8, "zero_stage": 3},
        {"dp": 4, "tp": 2, "sequence_parallel": True, "zero_stage": 3},
        {"dp": 4, "tp": 2, "sequence_parallel": True, "zero_stage": 1},
        {"dp": 4, "cp": 2, "zero_stage": 1},
        {"dp": 4, "cp": 2, "zero_stage": 3},
        {"dp": 8, "ep": 8, "zero_stage": 1},
        {"dp": 8, "ep": 8, "zero_stage": 3},
        {"dp": 2, "pp": 4, "vpp": 2, "schedule": "interleaved"},
        {"dp": 2, "pp": 4, "vpp": 2, "schedule": "interleaved", "micro_batch_size": 4},
    )
]
ACROSS = [Layout(dp=16, ep=16, zero_stage=1)]
"""On two nodes, where a dispatcher may be another one by default."""
SEARCHED = [(name, one) for name in EXPORTERS for one in RUNTIMES[name].settings]


def written(make_job, runtime, model, options, layout):
    job = make_job(model, f"{layout.world_size // 8}x8:h100-sxm", 48).model_copy(
        update={"runtime": runtime}
    )
    job = job.model_copy(update={"options": RuntimeOptions(**options)})
    try:
        made = EXPORTERS[runtime].export(job, layout)
    except (UnsupportedError, CatalogError):
        return None
    return made.environment, made.arguments, made.files


@pytest.mark.parametrize(("runtime", "one"), SEARCHED, ids=lambda x: getattr(x, "text", x))
def test_a_setting_that_is_searched_is_written(make_job, runtime, one):
    graphed = one.value == "full_iteration" and runtime == "megatron-bridge"
    others = {"moe_dispatcher": "hybridep"} if graphed else {}
    others |= {"overlap_moe_a2a": True} if one.name == "delay_wgrad" else {}
    pairs = (
        tuple(
            written(make_job, runtime, model, options, layout)
            for options in (others, others | {one.name: one.value})
        )
        for model in ("llama2-7b", "qwen3-30b-a3b", "deepseek-v2-lite")
        for layout in (*LAYOUTS, *ACROSS)
    )
    both = (pair for pair in pairs if None not in pair)
    assert any(plain != on for plain, on in both), one.source
