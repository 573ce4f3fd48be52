"""A layout that is printed and pasted back is the same layout, whatever runtime it is for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import examples
from trainplan.cli.terminal.characters import plain
from trainplan.cli.values.layout_text import parse_layout
from trainplan.cli.values.printed_layout import printed_fields
from trainplan.cli.words import layout_line, recompute_text
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import (
    OFFLOAD_MODULES,
    PARAMETER_TIERS,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
    TIERS,
    Layout,
    OffloadSpec,
    StageSpec,
)
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.space.grid import RuleFilter, Space, memory_policies, nodes, skeletons

MOE = preset("qwen3-30b-a3b")
DEGREES = st.sampled_from([1, 2, 3, 4, 8, 16])


@st.composite
def layouts(draw):
    """Any layout at all; most are legal nowhere."""
    kind = draw(st.sampled_from(["none", "selective", "full block", "full uniform"]))
    recompute = {"recompute": kind.split()[0]}
    if kind == "selective":
        modules = st.lists(st.sampled_from(RECOMPUTE_MODULES), min_size=1, unique=True)
        recompute["recompute_modules"] = tuple(draw(modules))
    elif kind != "none":
        recompute["recompute_method"] = kind.split()[1]
        recompute["recompute_num_layers"] = draw(st.integers(1, 99))
    pp, vpp, rep = draw(DEGREES), draw(DEGREES), draw(DEGREES)
    again = st.none() | st.integers(0, 9) if kind == "full block" else st.none()
    stage = st.builds(StageSpec, layers=st.integers(0, 99), recompute_num_layers=again,
                      group=st.integers(0, 2))  # fmt: skip
    whole = st.lists(stage, min_size=pp * vpp, max_size=pp * vpp).map(tuple)
    return Layout(
        tp=draw(DEGREES), pp=pp, vpp=vpp, cp=draw(DEGREES), dp=rep * draw(DEGREES),
        cp_heads=draw(DEGREES), ep=draw(DEGREES), etp=draw(DEGREES), dp_replicate=rep,
        zero_stage=draw(st.integers(0, 3)), sequence_parallel=draw(st.booleans()),
        micro_batch_size=draw(st.integers(1, 99)), schedule=draw(st.sampled_from(SCHEDULE_NAMES)),
        offload=OffloadSpec(
            optimizer=draw(st.floats(0, 1)), tier=draw(st.sampled_from(TIERS)),
            parameters=draw(st.sampled_from(PARAMETER_TIERS)), checkpoints=draw(st.floats(0, 1)),
            stride=draw(st.sampled_from([0, 2, 7])),
        ),
        offload_modules=tuple(draw(st.lists(st.sampled_from(OFFLOAD_MODULES), unique=True))),
        tiled_loss=draw(st.booleans()), tiled_mlp=draw(st.booleans()),
        stages=draw(st.none() | whole), **recompute,
    )  # fmt: skip


@given(layouts())
@examples(60, by_night=5000)
def test_any_layout_is_read_back_from_its_line(layout):
    cluster = parse_cluster("1x8:h100-sxm")
    line = layout_line(layout, MOE)
    for text in (line, plain(line, "ascii"), line.replace(" · ", " "), f"asked: {line}"):
        assert parse_layout(text, cluster) == layout


JOBS = (
    ("small-moe", "2x4:h100-sxm", 24),
    ("small-dense", "2x4:h100-sxm", 24),
    ("small-dense", "1x1:h100-sxm", 1),
)
"""The first is for every runtime that runs experts, the last for one that runs on one GPU."""
ON_DRIVES = Layout(offload=OffloadSpec(optimizer=1, tier="nvme", parameters="nvme"))
"""Of a method that asks for drives, which none of the jobs has."""


def tables(runtime, make_job):
    """Layouts that searches for a runtime meet."""
    for name in JOBS:
        job = make_job(*name).model_copy(update={"runtime": runtime})
        space, rules = Space(context_for(job)), RuleFilter(job, rules_of_job(job))
        below = skeletons(space, rules, nodes(space, rules).table).table
        if len(below):
            yield job, memory_policies(space, below)[0]
    yield job, LayoutTable.of([ON_DRIVES])


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_layouts_of_every_runtime_are_read_back(runtime, make_job):
    job, table = next(tables(runtime, make_job))
    for i in np.random.default_rng(7).integers(len(table), size=40):
        layout = table.row(int(i))
        assert parse_layout(layout_line(layout, job.model), job.cluster) == layout
        cell = dict(printed_fields(f"recompute {recompute_text(layout)}") or [])
        assert cell.get("recompute", "selective") == layout.recompute
