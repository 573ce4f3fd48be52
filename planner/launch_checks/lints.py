"""What is usually a slip in a launch: each with what its one change buys on this job.

To add one: a function of the run that yields its suggestions, and its line in `LINTS`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for, machine_for
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import FieldDifference
from trainplan.planner.launch_checks.changed import (
    Run,
    field_changes,
    filling,
    setting_changes,
    with_options,
)
from trainplan.planner.launch_checks.edits import WORTH
from trainplan.planner.launch_checks.notes import edit_notes
from trainplan.planner.questions import estimate, width_notes
from trainplan.planner.runtimes import SettingChange
from trainplan.planner.space import broken_rules

TILE = 64
"""Widths of products that are no multiple of it leave part of a tile idle.

Source: NVIDIA, Matrix Multiplication Background User's Guide, "Tensor Core Requirements" and "Tile
Quantization": 128 bytes, that is 64 numbers of 16 bits, on A100 and later."""
MOST_PADDING = 0.01
"""A larger share of the vocabulary that is padding is worth a word."""
VOCAB_MULTIPLE = 128
"""Source: Megatron-LM megatron/training/arguments.py, --make-vocab-size-divisible-by."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One slip; `run` is the launch without it, null where no layout helps."""

    name: str
    says: str
    run: Run | None
    least: float = 0.0
    """Share of the step that it must save."""


@dataclass(frozen=True, slots=True)
class Lint:
    """A suggestion with its price."""

    name: str
    says: str
    fields: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]
    saved_s: float | None
    """Of a step; null where the lint changes nothing that is priced."""
    freed_bytes: float | None
    """Of the fullest rank."""
    fits: bool | None
    """With the change."""
    notes: tuple[str, ...] = ()
    """What it needs and rests on."""


Finder = Callable[[Run, Estimate, int], Iterator[Suggestion]]
"""Of a run, its price and the GPUs of one scale-up domain."""


def lints(
    run: Run, priced: Estimate, measured: Measured = NOTHING, *, memory_margin: float = 0.0
) -> tuple[Lint, ...]:
    """All that apply, what saves most first, the best of each name.

    A change that loses time and frees nothing is none.
    """
    domain = machine_for(run.job, measured).domain_gpus
    found = (
        _with_price(run, priced, one, measured, memory_margin)
        for finder in LINTS
        for one in finder(run, priced, domain)
    )
    kept = sorted((one for one in found if one), key=lambda one: -(one.saved_s or 0.0))
    return tuple({one.name: one for one in reversed(kept)}.values())[::-1]


def _with_price(
    run: Run, own: Estimate, one: Suggestion, measured: Measured, memory_margin: float
) -> Lint | None:
    changed = one.run
    if changed is None:
        return Lint(one.name, one.says, (), (), None, None, None)
    if broken_rules(changed.job, LayoutTable.of([changed.layout]))[0]:
        return None
    try:
        new = estimate(changed.job, changed.layout, measured, memory_margin=memory_margin)
    except PlanError:  # such settings never go together
        return None
    saved = own.step_time_s - new.step_time_s
    freed = own.memory.peak_reserved_bytes - new.memory.peak_reserved_bytes
    helps_fit = not own.memory.fits and freed > 0
    pays = saved > one.least * own.step_time_s or (saved == 0 and freed > 0)
    if not (helps_fit or (new.memory.fits and pays)):
        return None
    return Lint(
        name=one.name,
        says=one.says,
        fields=field_changes(run, changed),
        settings=setting_changes(run, changed),
        saved_s=saved,
        freed_bytes=freed,
        fits=new.memory.fits,
        notes=tuple(edit_notes(run, changed)),
    )


def _with_layout(run: Run, **values: object) -> Run | None:
    """The run with other fields of its layout, data parallelism filling the cluster."""
    layout = filling({**dict(run.layout), **values}, run.job.cluster.num_gpus)
    return None if layout is None else Run(run.job, layout)


def _with_option(run: Run, **values: object) -> Run:
    return Run(with_options(run.job, values), run.layout)


def _some(name: str, says: str, run: Run | None) -> Iterator[Suggestion]:
    if run is not None:
        yield Suggestion(name, says, run)


def tensor_parallel_across_nodes(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Its collectives run in every layer, at the speed of the slowest link."""
    tp = run.layout.tp
    if tp > domain:
        says = f"tp = {tp} leaves the {domain} GPUs that NVLink joins: its all-reduces cross nodes"
        pipeline = run.layout.pp * (tp // domain)
        for pp in (run.layout.pp, pipeline):
            changed = _with_layout(run, tp=domain, pp=pp, stages=None)
            yield from _some("tensor_parallel_across_nodes", says, changed)


def sequence_parallel_off(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Norms and residual stream whole on every rank of tp."""
    if run.layout.tp > 1 and not run.layout.sequence_parallel:
        says = f"tp = {run.layout.tp} without sequence parallelism keeps whole norms and residuals"
        yield from _some("sequence_parallel_off", says, _with_layout(run, sequence_parallel=True))


def recomputation_without_need(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Memory that nobody needed, paid in seconds."""
    if run.layout.recompute == "none":
        return
    plain: dict[str, object] = {
        "recompute_modules": (),
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    own = run.layout.stages
    if own is not None:
        plain["stages"] = tuple(s.model_copy(update={"recompute_num_layers": None}) for s in own)
    says = f"recompute {run.layout.recompute}: it fits without"
    yield from _some(
        "recomputation_without_need", says, _with_layout(run, recompute="none", **plain)
    )
    if run.layout.recompute == "full":
        core = {**plain, "recompute": "selective", "recompute_modules": ("core_attn",)}
        says = "recompute full: it fits with the attention core alone"
        yield from _some("recomputation_without_need", says, _with_layout(run, **core))


def optimizer_not_sharded(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Every replica keeps all optimizer states."""
    if run.layout.zero_stage == 0 and run.layout.dp * run.layout.cp > 1:
        says = f"{run.layout.dp} replicas keep the optimizer states whole each: shard them"
        yield from _some("optimizer_not_sharded", says, _with_layout(run, zero_stage=1))


def no_virtual_stages(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """The bubble is divided by the virtual stages."""
    layout, layers = run.layout, run.job.model.num_hidden_layers
    if layout.pp > 1 and layout.vpp == 1 and layout.stages is None:
        for vpp in (n for n in (2, 4) if layers % (layout.pp * n) == 0):
            says = f"pp = {layout.pp} without virtual stages: {vpp} of them divide the bubble"
            changed = _with_layout(run, vpp=vpp, schedule="interleaved")
            yield from _some("no_virtual_stages", says, changed)


def experts_cut_by_tp(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """The default of the runtime: small products, cut further."""
    layout, moe = run.layout, run.job.model.moe
    if moe and layout.etp > 1:
        ep = layout.ep * layout.etp
        says = f"experts are cut in {layout.etp} by tensor parallelism: keep them whole"
        if moe.num_experts % ep == 0:
            yield from _some("experts_cut_by_tp", says, _with_layout(run, etp=1, ep=ep))


def overlap_off(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Traffic of data parallelism waits for the passes to end."""
    options = run.job.options
    names = ("overlap_grad_reduce", "overlap_param_gather")
    off = {name: True for name in names if getattr(options, name) is False}
    if off and run.layout.dp > 1:
        says = f"{' and '.join(off)} off: gradients and weights travel after the passes, exposed"
        yield Suggestion("overlap_off", says, _with_option(run, **off))


def expert_settings(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Settings that a search would try for a model of experts, each alone on the layout as it is.

    Those that change what numbers are stored in are none.
    """
    if run.job.model.moe is None:
        return
    for one in context_for(run.job).traits.settings:
        changed = _with_option(run, **{one.name: one.value})
        if one.level == "safe" and changed.job != run.job and not one.refused(changed.job):
            yield Suggestion(one.name, f"{one.text} is not set", changed, WORTH)


def slow_kernels(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """What a fused kernel does better."""
    options = run.job.options
    if options.attention == "unfused":
        says = "attention is unfused: a fused kernel keeps no scores"
        yield Suggestion("unfused_attention", says, _with_option(run, attention="flash"))
    if options.cross_entropy == "unfused":
        says = "cross entropy is unfused: the fused one keeps fewer copies of the logits"
        yield Suggestion("unfused_cross_entropy", says, _with_option(run, cross_entropy="fused"))


def off_the_grid(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Widths that kernels do not take as they are."""
    if says := "; ".join(width_notes(context_for(run.job), run.layout, priced)):
        yield Suggestion("off_the_grid", says, None)


def odd_widths(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Products whose sides leave a part of a tile idle."""
    model, tp = run.job.model, run.layout.tp
    widths = {
        "hidden_size": model.hidden_size,
        f"intermediate_size / tp = {model.intermediate_size} / {tp}": model.intermediate_size // tp,
    }
    odd = [name if "=" in name else f"{name} = {n}" for name, n in widths.items() if n % TILE]
    if odd:
        says = f"{' and '.join(odd)}: no multiple of {TILE}, so tiles of products are partly idle"
        yield Suggestion("odd_widths", says, None)


def padded_vocabulary(run: Run, priced: Estimate, domain: int) -> Iterator[Suggestion]:
    """Rows of the embedding and the head that no token has."""
    size, unit = run.job.model.vocab_size, VOCAB_MULTIPLE * run.layout.tp
    padding = -size % unit
    if padding > MOST_PADDING * size:
        says = f"the vocabulary of {size:,} is padded by {padding:,} to a multiple of 128 tp"
        yield Suggestion("padded_vocabulary", says, None)


LINTS: tuple[Finder, ...] = (
    tensor_parallel_across_nodes,
    sequence_parallel_off,
    optimizer_not_sharded,
    recomputation_without_need,
    no_virtual_stages,
    experts_cut_by_tp,
    overlap_off,
    expert_settings,
    slow_kernels,
    off_the_grid,
    odd_widths,
    padded_vocabulary,
)
