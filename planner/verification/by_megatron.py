"""Layouts of few processes that use what a plan uses: each by itself, then together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, stage_specs
from trainplan.planner.verification.shrink import EXPERTS, left_out, simplified, tiny_job

AXES = ("tp", "pp", "dp")
"""Degrees that fill the processes; experts are dealt out over the ranks of `tp` and `dp`."""
LATENT = ("mla_up_proj",)
"""Modules of latent attention, which the tiny model has not."""
Refuse = Callable[[Job, Layout], str | None]
"""What a trainer cannot run of a job and a layout; null: it can."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A layout that is run."""

    job: Job
    layout: Layout


Request = tuple[Combination, str | None]
"""With why it cannot be run; null: it can."""


@dataclass(frozen=True, slots=True)
class Combinations:
    """All that is run, and what of the plan is not."""

    reference: Combination
    """One process."""
    others: tuple[Combination, ...]
    not_run: tuple[str, ...]
    """What of the plan, and why; a line each."""
    simplified: tuple[str, ...] = ()
    """What no layout cuts and is run in a plainer form; a line each."""


def combinations(job: Job, layout: Layout, nproc: int, refuse: Refuse) -> Combinations:
    """What a plan uses, on so many processes.

    Raises:
        SpecError: The trainer cannot run the model at all, or nothing of the layout.
    """

    def reasons(checked: Sequence[Request]) -> Iterator[str]:
        yield from _unused(layout)
        yield from (why for _, why in checked if why)

    return gathered(job, layout, _layouts(_Used(layout, job), nproc), refuse, reasons)


def gathered(
    job: Job,
    plan: Layout,
    layouts: Iterable[Layout],
    refuse: Refuse,
    reasons: Callable[[Sequence[Request]], Iterable[str]],
    **changes: object,
) -> Combinations:
    """Each layout once, of a tiny job with some changes; `reasons` tell what is not run.

    Raises:
        SpecError: The trainer cannot run the model at all, or nothing of the layout.
    """
    every = list(dict.fromkeys(layouts))
    layers = max(4, *(one.pp * one.vpp for one in every)) if every else 4
    size = min(plan.micro_batch_size, 2)
    tiny = tiny_job(job, layers, size).model_copy(update=changes)
    reference = combination(tiny, Layout(zero_stage=0, micro_batch_size=size))
    if why := refuse(reference.job, reference.layout):
        raise SpecError(f"the trainer does not run {why}")
    made = [combination(tiny, staged(one, plan, layers)) for one in every]
    checked = [(one, refuse(one.job, one.layout)) for one in made]
    others, not_run = tuple(one for one, why in checked if not why), list(reasons(checked))
    if plan.world_size > 1 and not others:
        raise SpecError(f"nothing of the layout can be run here: {not_run[0]}")
    missing = tuple(dict.fromkeys([*left_out(job), *not_run]))
    return Combinations(reference, others, missing, tuple(simplified(job)))


def combination(job: Job, layout: Layout) -> Combination:
    """A layout of a tiny job, on a cluster of as many GPUs."""
    cluster = parse_cluster(f"1x{layout.world_size}:h100-sxm")
    return Combination(job.model_copy(update={"cluster": cluster}), layout)


@dataclass(frozen=True, slots=True)
class _Used:
    """What a plan uses."""

    plan: Layout
    job: Job

    @property
    def axes(self) -> tuple[str, ...]:
        """Degrees above one; one copy that experts are cut of counts as data parallel."""
        return tuple(axis for axis in AXES if getattr(self.plan, axis) > 1)

    @property
    def experts(self) -> bool:
        """Are experts dealt out?"""
        return self.job.model.moe is not None and self.plan.ep > 1

    def layout(self, degrees: Mapping[str, int], **knobs: object) -> Layout:
        """With these degrees, and of the knobs those that mean something."""
        size = min(self.plan.micro_batch_size, 2)
        stated: dict[str, object] = {"zero_stage": 0, "micro_batch_size": size, **degrees, **knobs}
        return Layout.model_validate(stated)

    def pipeline(self, degrees: Mapping[str, int]) -> Mapping[str, object]:
        """Virtual stages, where the plan has some and here is a pipeline."""
        if degrees.get("pp", 1) == 1 or self.plan.vpp == 1:
            return {}
        return {"vpp": 2, "schedule": "interleaved"}

    def tensor(self, degrees: Mapping[str, int]) -> Mapping[str, object]:
        """Sequence parallelism, as the plan has it."""
        return {"sequence_parallel": self.plan.sequence_parallel and degrees.get("tp", 1) > 1}

    def data(self, degrees: Mapping[str, int]) -> Mapping[str, object]:
        """Sharded optimizer and its copies."""
        dp = degrees.get("dp", 1)
        if dp == 1:
            return {}
        copies = 2 if self.plan.dp_replicate > 1 and dp % 2 == 0 else 1
        stage = min(self.plan.zero_stage, 1)
        return {"zero_stage": stage, "dp_replicate": copies if stage else 1}

    def dealt(self, degrees: Mapping[str, int]) -> Mapping[str, int]:
        """Experts over the ranks of both other axes, as far as they go."""
        if self.job.model.moe is None:
            return {}
        tp, dp = degrees.get("tp", 1), degrees.get("dp", 1)
        etp = tp if self.plan.etp > 1 else 1
        copies = self.data(degrees).get("dp_replicate", 1)
        assert isinstance(copies, int), "a degree"
        ranks = tp * dp // etp // copies
        return {"etp": etp, "ep": min(ranks, EXPERTS) if self.plan.ep > 1 else 1}

    @property
    def recompute(self) -> Mapping[str, object]:
        """As the plan recomputes, one layer at a time."""
        plan = self.plan
        if plan.recompute == "full":
            method = plan.recompute_method
            return {"recompute": "full", "recompute_method": method, "recompute_num_layers": 1}
        if plan.recompute == "selective":
            modules = tuple(one for one in plan.recompute_modules if one not in LATENT)
            return {"recompute": "selective", "recompute_modules": modules} if modules else {}
        return {}


def _layouts(used: _Used, nproc: int) -> Iterator[Layout]:
    """Each by itself, then together."""
    yield from _alone(used, nproc)
    for degrees in _factors(used.axes, nproc):
        knobs = {
            **used.pipeline(degrees),
            **used.tensor(degrees),
            **used.data(degrees),
            **used.dealt(degrees),
        }
        yield used.layout(degrees, **knobs)
        if used.recompute:
            yield used.layout(degrees, **knobs, **used.recompute)


def _alone(used: _Used, nproc: int) -> Iterator[Layout]:
    """Each feature of the plan by itself, on as many processes as it can use."""
    plan, moe = used.plan, used.job.model.moe is not None
    if plan.tp > 1:
        degrees = {"tp": min(nproc, 4)}
        own = {"etp": degrees["tp"]} if moe else {}
        if not moe:
            yield used.layout(degrees)
        if plan.sequence_parallel:
            yield used.layout(degrees, sequence_parallel=True, **own)
    if plan.pp > 1:
        yield used.layout({"pp": nproc})
        if plan.vpp > 1:
            degrees = {"pp": max(2, nproc // 2)}
            yield used.layout(degrees, **used.pipeline(degrees))
    if plan.dp > 1:
        yield used.layout({"dp": nproc})
        yield used.layout({"dp": nproc}, **used.data({"dp": nproc}))
    if used.experts:
        yield used.layout({"dp": nproc}, **used.data({"dp": nproc}), **used.dealt({"dp": nproc}))
    if used.recompute:
        yield used.layout({}, **used.recompute)


def _factors(axes: Sequence[str], nproc: int) -> Iterator[Mapping[str, int]]:
    """Ways to fill the processes with as many of the axes as they can hold, each at least two."""
    held = min(len(axes), nproc.bit_length() - 1)
    shares: Mapping[int, Sequence[tuple[int, ...]]]
    shares = {1: [(nproc,)], 2: [(2, nproc // 2), (nproc // 2, 2)], 3: [(2, 2, nproc // 4)]}
    found = [
        dict(zip(chosen, share, strict=True))
        for chosen in permutations(axes, held)
        if list(chosen) == sorted(chosen, key=AXES.index)
        for share in shares.get(held, [])
    ]
    yield from (one for one in found if one.get("tp", 1) <= 4)


def staged(layout: Layout, plan: Layout, layers: int) -> Layout:
    """The same with uneven stages where the plan's are."""
    counts = [stage.layers for stage in plan.stages or ()]
    if layout.pp == 1 or len(set(counts)) < 2:
        return layout
    stages = layout.pp * layout.vpp
    own = [layers // stages] * stages
    lighter = 0 if counts[0] < counts[-1] else -1
    own[lighter] -= 1
    own[-1 if stages == 2 and lighter == 0 else 0 if stages == 2 else 1] += 1
    return layout.model_copy(update={"stages": stage_specs(own)})


def _unused(plan: Layout) -> Iterator[str]:
    """What of the layout no combination has, and why."""
    if plan.cp > 1:
        yield "cp: megatron-core has context parallelism with Transformer Engine alone"
    if plan.zero_stage > 1:
        yield f"ZeRO-{plan.zero_stage}: Megatron's FSDP needs GPUs; run as ZeRO-1"
    if plan.schedule not in ("1f1b", "interleaved"):
        yield f"schedule {plan.schedule}: megatron-core has 1f1b and interleaved; run with these"
    if plan.offload != type(plan.offload)() or plan.offload_modules:
        yield "offload: it moves tensors and changes no sum"
    if plan.tiled_loss or plan.tiled_mlp:
        yield "tiles: run whole"
