"""An axis is told once: what forgets one of them says so here, with the file to mend."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

import pytest

from trainplan.cli.pages.parts.differences import SAME, change_text
from trainplan.cli.values.layout_text import parse_layout
from trainplan.cli.words import layout_line
from trainplan.costmodel.axes import AXES, Held, Least, Tried
from trainplan.costmodel.axes.axis import Apart
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.calibration import context_for, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.codecs import Count, Flag, Modules, Names, Share
from trainplan.costmodel.layout.layout import Layout, OffloadSpec, ShardSpec, stage_specs
from trainplan.costmodel.layouts.table import FIELDS, LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.step import price
from trainplan.planner.documents.layout import layout_from_json, layout_json
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.policies.recompute import POLICY_COLUMNS
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import Space, parse_choice
from trainplan.planner.space.choices import broken_rules
from trainplan.planner.space.grid import FIRST_KNOWN, SKELETON_COLUMNS, values_outside_grid


@dataclass(frozen=True)
class Sample:
    """Two layouts that differ in one axis, and in what must go with it."""

    on: Mapping[str, object]
    off: Mapping[str, object] = field(default_factory=dict)
    model: str = "small-dense"
    same: Mapping[str, object] = field(default_factory=dict)


SELECTIVE = {"recompute": "selective", "recompute_modules": ("core_attn",)}
UNIFORM = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
SAMPLES = {
    "vpp": Sample(on={"vpp": 3, "schedule": "interleaved"}, same={"pp": 2}),
    "schedule": Sample(on={"vpp": 3, "schedule": "interleaved"}, same={"pp": 2}),
    "ep": Sample(on={"ep": 2}, same={"dp": 4}, model="small-moe"),
    "etp": Sample(
        on={"etp": 2}, same={"dp": 2, "tp": 2, "sequence_parallel": True}, model="small-moe"
    ),
    "replicas_share_optimizer": Sample(
        on={"replicas_share_optimizer": True}, same={"dp": 4, "dp_replicate": 2, "zero_stage": 3}
    ),
    "hpz": Sample(on={"hpz": 2}, same={"dp": 4, "zero_stage": 3}),
    "shard": Sample(
        on={"shard": ShardSpec(weights=2, gradients=4, optimizer=8)},
        off={"zero_stage": 3},
        same={"dp": 8},
    ),
    "egtp": Sample(on={"egtp": 2}, same={"dp": 4}, model="small-moe"),
    "sequence_parallel": Sample(on={"sequence_parallel": True}, same={"tp": 2}),
    "zero_stage": Sample(on={"zero_stage": 1}, off={"zero_stage": 0}, same={"dp": 4}),
    "recompute": Sample(on=UNIFORM),
    "recompute_modules": Sample(
        on={"recompute_modules": ("core_attn", "mlp")}, off=SELECTIVE, same=SELECTIVE
    ),
    "recompute_method": Sample(on={"recompute_method": "block"}, same={**UNIFORM, "pp": 2}),
    "recompute_num_layers": Sample(on={"recompute_num_layers": 3}, same=UNIFORM),
    "offload.optimizer": Sample(on={"offload": OffloadSpec(optimizer=0.5)}, same={"dp": 2}),
    "offload.tier": Sample(
        on={"offload": OffloadSpec(optimizer=1, tier="nvme")},
        off={"offload": OffloadSpec(optimizer=1)},
        same={"dp": 2, "zero_stage": 3},
    ),
    "offload.parameters": Sample(
        on={"offload": OffloadSpec(parameters="cpu")}, same={"dp": 2, "zero_stage": 3}
    ),
    "offload.checkpoints": Sample(
        on={"offload": OffloadSpec(checkpoints=1)}, same={**UNIFORM, "dp": 2}
    ),
    "offload.stride": Sample(
        on={"offload": OffloadSpec(optimizer=1, stride=2)},
        off={"offload": OffloadSpec(optimizer=1)},
        same={"dp": 2, "zero_stage": 3},
        model="llama3-8b",  # several subgroups
    ),
    "stages": Sample(on={"stages": stage_specs((2, 4))}, same={"pp": 2}),
    "cp_heads": Sample(
        on={"cp_heads": 2},
        same={"cp": 4},
        model="llama3-8b",  # which no host holds up
    ),
    "tiled_loss": Sample(on={"tiled_loss": True}, same={"dp": 4, "micro_batch_size": 8}),
}
"""Where a value alone makes no layout; else it is varied beside four replicas."""
WITH_WEIGHTS = OffloadSpec(optimizer=1, parameters="cpu")
SELECTED = {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)}
BLOCK = {"recompute": "full", "recompute_method": "block"}
SAMPLES_OF = {
    ("megatron-zero-bubble", "recompute_modules"): Sample(on=SELECTIVE),
    ("megatron-zero-bubble", "stages"): Sample(on={"stages": stage_specs((1, 2, 2, 1)), "pp": 4}),
    ("torchtitan", "ep"): Sample(on={"ep": 2}, same={"dp": 4}, model="small-moe"),
    ("torchtitan", "etp"): Sample(
        on={"etp": 2},
        off={"ep": 2},
        same={"dp": 2, "tp": 2, "sequence_parallel": True},
        model="small-moe",
    ),
    ("torchtitan", "zero_stage"): Sample(on={"zero_stage": 3}, off={"zero_stage": 2}),
    ("torchtitan", "offload.optimizer"): Sample(on={"offload": WITH_WEIGHTS}, same={"dp": 2}),
    ("torchtitan", "offload.parameters"): Sample(on={"offload": WITH_WEIGHTS}, same={"dp": 2}),
    ("torchtitan", "recompute_modules"): Sample(on=SELECTED),
    ("torchtitan", "recompute_method"): Sample(on=UNIFORM),
    ("torchtitan", "recompute_num_layers"): Sample(
        on={"recompute_num_layers": 3}, off={"recompute_num_layers": 2}, same=BLOCK
    ),
    ("deepspeed", "dp_replicate"): Sample(on={"dp_replicate": 2}, same={"dp": 4, "zero_stage": 3}),
    ("deepspeed", "zero_stage"): Sample(on={"zero_stage": 3}, same={"dp": 4}),
    ("deepspeed", "recompute_num_layers"): Sample(on=UNIFORM),
    ("deepspeed", "offload.optimizer"): Sample(
        on={"offload": OffloadSpec(optimizer=0.5)}, same={"dp": 2, "zero_stage": 3}
    ),
    ("accelerate", "zero_stage"): Sample(on={"zero_stage": 3}, off={"zero_stage": 2}),
    ("accelerate", "recompute_num_layers"): Sample(on=UNIFORM),
    ("transformers", "zero_stage"): Sample(on={"zero_stage": 3}, off={"zero_stage": 2}),
    ("transformers", "recompute_method"): Sample(on=UNIFORM),
    ("transformers", "recompute_num_layers"): Sample(
        on={"recompute_num_layers": 3}, off={"recompute_num_layers": 2}, same=BLOCK
    ),
    ("fsdp2", "recompute_method"): Sample(
        on={**BLOCK, "recompute_num_layers": 1}, off=UNIFORM, same={"dp": 4}
    ),
    ("fsdp2", "recompute_num_layers"): Sample(
        on={"recompute_num_layers": 3}, off={"recompute_num_layers": 2}, same=BLOCK
    ),
}
SAMPLES_OF |= {
    ("arctic-training", name): sample
    for (runtime, name), sample in SAMPLES_OF.items()
    if runtime == "deepspeed"
}
SAMPLES_OF["arctic-training", "tiled_loss"] = Sample(  # its trainer tiles it with sequence ranks
    on={"tiled_loss": True, "cp": 2, "dp": 2, "micro_batch_size": 16}, off={"dp": 4}
)
"""As above, where a runtime has no layout with such a value."""
SHARDED = {
    name: {"dp": 4, "zero_stage": 3} for name in ("torchtitan", "accelerate", "transformers")
}
"""What layouts without a pipeline have in common: these runtimes shard gradients after every micro
batch."""


def sample_of(axis, runtime=None):
    """Two layouts and their model: with the axis off, or nearly, and with it on."""
    other = {Count: 2, Flag: True, Share: 0.5}
    if (runtime, axis.name) in SAMPLES_OF:
        sample = SAMPLES_OF[runtime, axis.name]
    elif axis.name in SAMPLES:
        sample = SAMPLES[axis.name]
    elif isinstance(axis.codec, Modules):
        sample = Sample(on={axis.name: axis.codec.names[:1]}, same={"dp": 4})
    elif isinstance(axis.codec, Names):
        sample = Sample(on={axis.name: axis.codec.names[-1]}, same={"dp": 4})
    else:
        alongside = {} if axis.name in ("tp", "cp", "pp", "dp") else {"dp": 4}
        sample = Sample(on={axis.name: other[type(axis.codec)]}, same=alongside)
    off, on = ({**sample.same, **some} for some in (sample.off, sample.on))
    if "pp" not in on:
        off, on = ({**SHARDED.get(runtime, {}), **some} for some in (off, on))
    return Layout(**off), Layout(**on), sample.model


LONGER = {"cp_heads": 1 << 14}
"""Tokens with which an axis shows that launches hide at the usual length."""
axes = pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)


@pytest.fixture(name="job_for")
def _job_for(make_job):
    """(model, layout, runtime) -> a job whose cluster the layout fills."""

    def make(model, layout, runtime="megatron-lm"):
        job = make_job(model, f"1x{layout.world_size}:h100-sxm@dgx-2", 32)
        tiles = runtime in ("accelerate", "transformers")
        settings = {"liger": "0.6"} if tiles and layout.tiled_loss else {}
        options = job.options.model_copy(update=settings)  # its kernels alone tile the loss
        return job.model_copy(update={"runtime": runtime, "options": options})

    return make


def fields_of(spec, prefix=""):
    """Fields of a spec, and those of its specs, that may have more than one value."""
    for name, about in spec.model_fields.items():
        if isinstance(about.annotation, type) and issubclass(about.annotation, Spec):
            yield from fields_of(about.annotation, f"{prefix}{name}.")
        elif len(get_args(about.annotation)) != 1:
            yield f"{prefix}{name}"


def test_field_column_and_axis_go_together():
    places = {
        "Layout in costmodel/layout/layout.py": set(fields_of(Layout)),
        "LayoutTable in costmodel/layouts/table.py": {field.path for field in FIELDS.values()},
        "AXES in costmodel/axes/registry.py": {axis.name for axis in AXES},
    }
    every = set().union(*places.values())
    lacks = [f"{place} has no {', '.join(every - has)}" for place, has in places.items()]
    assert not [text for text, has in zip(lacks, places.values(), strict=True) if every - has]
    assert len({axis.word for axis in AXES}) == len({axis.name for axis in AXES}) == len(AXES)


def test_off_is_what_a_layout_has_unless_it_says_otherwise():
    usual = Layout()
    assert [axis.name for axis in AXES if not axis.is_off(usual)] == ["zero_stage"]


def test_the_search_varies_an_axis_or_holds_it():
    levels = {*SKELETON_COLUMNS, *POLICY_COLUMNS, "offload_optimizer"}
    for axis in AXES:
        tried = isinstance(axis.search, Tried | Least)
        assert tried == (axis.column in levels), (
            f"the search varies {axis.column}: {axis.column in levels}, its axis says {tried}"
        )
        assert isinstance(axis.search, Held) <= (axis.column in FIRST_KNOWN)


@axes
def test_an_axis_is_read_and_printed(axis, job_for):
    off, on, model = sample_of(axis)
    job = job_for(model, on)
    assert axis.text(on) != axis.text(off)
    stated = (a for a in AXES if {a.of(on), a.of(off)} != {a.of(Layout())})
    lines = ",".join(f"{a.option}={a.text(on)}" for a in stated)
    assert parse_layout(lines, job.cluster) == on
    assert layout_line(on, job.model) != layout_line(off, job.model)
    assert change_text(on, off, job.model) != SAME
    written = json.loads(json.dumps(layout_json(job, on)))
    assert layout_from_json(written) == on
    assert written != json.loads(json.dumps(layout_json(job, off)))


@axes
def test_an_axis_is_fixed_and_excluded(axis, job_for):
    off, on, model = sample_of(axis)
    job, table = job_for(model, on), LayoutTable.of([off, on])
    text = "even" if isinstance(axis.search, Apart) else axis.text(on)
    same = [False, True] if not isinstance(axis.search, Apart) else [True, False]
    for excluded in (False, True):
        choice = parse_choice(f"{axis.option}={text}", excluded=excluded)
        refused = choice.rule().broken(job, table).tolist()
        assert refused == [one == excluded for one in same]
    for sentence in values_outside_grid(Space(context_for(job)), [replace(choice, excluded=False)]):
        assert sentence.startswith(f"--fix {axis.option}=")


@axes
@pytest.mark.parametrize("runtime", EXPORTERS)
def test_every_exporter_writes_or_refuses_every_axis(axis, runtime, job_for):
    exporter, (off, on, model) = EXPORTERS[runtime], sample_of(axis, runtime)
    lacking = [a.name for a in AXES if a.name not in exporter.writes and not a.is_off(on)]
    assert axis.name in (*lacking, *exporter.writes)
    if lacking:
        with pytest.raises(UnsupportedError, match=rf"({'|'.join(lacking)}) = .*set it to"):
            exporter(job_for(model, on, runtime), on)
        return
    launches = []
    for layout in (off, on):
        job = job_for(model, layout, runtime)
        config = replace(exporter(job, layout), summary=(), notes=())
        launches.append((LAUNCHERS["torchrun"](config, job.cluster, ()).text, config.files))
    assert launches[0] != launches[1], (
        f"the exporter of {runtime} says that it writes {axis.name}, and its launch is the same"
    )


@axes
def test_every_axis_runs_somewhere(axis, job_for):
    _, on, model = sample_of(axis)
    jobs = (job_for(model, on, runtime) for runtime in RUNTIMES)
    assert any(not broken_rules(job, LayoutTable.of([on]))[0] for job in jobs), (
        f"every runtime refuses {on}: give {axis.name} a layout in SAMPLES of "
        "tests/architecture/test_axes.py that one of them runs"
    )


@axes
def test_a_search_says_that_it_holds_an_axis(axis, job_for):
    if not isinstance(axis.search, Held):
        return
    _, on, model = sample_of(axis)
    choice = parse_choice(f"{axis.option}={axis.text(on)}", excluded=False)
    answer = search(job_for(model, on), SearchOptions(fix=(choice,)))
    assert isinstance(answer, Infeasible)
    [sentence] = answer.untried
    assert sentence == (
        f"--fix {axis.option}={axis.text(on)}: the search tries {axis.codec.text(axis.off)} only"
    )


def test_an_axis_that_is_not_written_is_refused(job_for):
    exporter = EXPORTERS["megatron-lm"]
    partly = replace(exporter, writes=exporter.writes - {"cp"})
    layout = Layout(cp=2)
    with pytest.raises(UnsupportedError, match="megatron-lm has no option for cp = 2: set it to 1"):
        partly(job_for("small-dense", layout), layout)


@axes
def test_every_runtime_prices_or_refuses_every_axis(axis, job_for):
    off, on, model = sample_of(axis)
    table = LayoutTable.of([off, on])
    for runtime in RUNTIMES:
        job = job_for(model, on, runtime)
        length = LONGER.get(axis.name, job.training.seq_length)
        training = job.training.model_copy(update={"seq_length": length})
        job = job.model_copy(update={"training": training})
        if any(axis.column in r.columns for rules in broken_rules(job, table) for r in rules):
            continue
        priced = price(context_of(job, machine_for(job)).with_table(table))
        seconds, used = priced.step_seconds, priced.memory.used
        assert seconds[0] != seconds[1] or used[0] != used[1], (
            f"no formula and no rule reads {axis.column}: price it, or refuse it under {runtime}"
        )
