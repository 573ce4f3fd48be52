"""What a user could buy, choose or leave out: each a question that can be searched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.outer import island_count, island_job
from trainplan.costmodel.runtimes import Setting
from trainplan.planner.cases import (
    Case,
    replaced,
    with_added_memory,
    with_all_settings,
    with_batch,
    with_choice,
    with_domain,
    with_failures,
    with_gpus,
    with_memory_by,
    with_nic,
    with_setting,
    without_choice,
    without_margin,
    without_reserve,
)
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import kept_layout
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import parse_choice

ADDED_GIB = 2.0
"""A step of memory small enough to price the limit, large enough to hold a layer's activations."""

BEST_SETTINGS = "the best of all settings together"
TECHNIQUES = ("dp_replicate", "replicas_share_optimizer", "gtp", "egtp", "hpz", "shard")
"""Axes that state who holds what, beyond degrees and ZeRO stages."""
BUCKETS = (4, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""MiB of gradient buckets that are priced."""
WORTH = 1e-3
"""A size of buckets that saves a smaller share of the step is none to name."""
CAPACITY = 1.25
"""Rows an expert takes over those of balanced tokens. Source: Switch Transformers,
arXiv:2101.03961, section 2.2, trains at 1.0 to 2.0 and at 1.25 in most runs; assumed."""
HEADS_FOR_SEQUENCE = "cp_comm_type=a2a"
"""Context ranks that exchange heads for sequence, as the setting is written."""
TRAINS_OTHERWISE = {"weight_bits": 8, "gradient_bits": 4}
"""Settings that change the training: priced here, and chosen by no search."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is otherwise."""

    name: str
    text: str
    apply: Callable[[Case], Case]
    same_step: bool = False
    """Does a step stay as it is, whatever its layout? Failures and saves are no part of it."""
    base: Candidate | None = None
    """What it is compared with, where that is not the plan."""


def changes(case: Case, layout: Layout) -> Iterator[Change]:
    """All of them: of failures, of the machine and the batch, of settings, of how states lie."""
    yield from _failures(case)
    yield from _islands(case)
    yield from _changes(case)
    yield from _outer_steps(case.job.outer)
    yield from _settings(case, layout)
    yield from _attention(case, layout)
    yield from _techniques(layout)
    yield from _experts(case, layout)
    yield from _buckets(case, layout)
    yield from _training(case)
    yield from _splits(layout)


def applied(change: Change, case: Case) -> Case | PlanError:
    """The changed question, or why there is none."""
    try:
        return change.apply(case)
    except PlanError as error:
        return error


def _failures(case: Case) -> Iterator[Change]:
    """What saves, restarts and nodes could be."""
    stated, exporter = case.job.cluster.failures, EXPORTERS.get(case.job.runtime)
    if stated is None:
        return

    def change(name: str, text: str, **values: object) -> Change:
        return Change(name, text, partial(with_failures, values=values), same_step=True)

    words = {"sync": "saves that training waits for", "async": "asynchronous saves"}
    words["local"] = "saves into memory of other nodes"
    for save, text in words.items():
        if save != stated.save and (exporter is None or save in exporter.saves):
            yield change(f"save_{save}", text, save=save)
    if stated.checkpoint_gb_per_s and stated.save != "local":
        faster = 2 * stated.checkpoint_gb_per_s
        yield change("checkpoint", f"checkpoints at {faster:g} GB/s", checkpoint_gb_per_s=faster)
    if stated.restart_minutes:
        shorter = stated.restart_minutes / 2
        yield change("restart", f"restarts in {shorter:g} minutes", restart_minutes=shorter)
    rarer = 2 * stated.mtbf_node_days
    yield change("mtbf", "nodes that fail half as often", mtbf_node_days=rarer)
    if stated.repair_hours:
        more = stated.spare_nodes + 1
        text = "a spare node" if more == 1 else f"{more} spare nodes"
        yield change("spare_node", text, spare_nodes=more)


def _attention(case: Case, layout: Layout) -> Iterator[Change]:
    """The tensor ranks of attention as context ranks that exchange heads, of a model of experts.

    Source: MegaScale-MoE, arXiv:2505.11432: each rank sends queries, keys,
    values and outputs of its share of the sequence, not the whole sequence; attention's weights are
    on every rank, and ZeRO shards their states over as many.
    """
    heads = any(one.text == HEADS_FOR_SEQUENCE for one in case.context.traits.settings)
    if case.job.model.moe is None or layout.tp == 1 or not heads:
        return
    ranks = layout.tp * layout.cp
    text = f"attention by sequence on the expert ranks: tp=1 cp={ranks} {HEADS_FOR_SEQUENCE}"

    def apply(question: Case) -> Case:
        name, _, value = HEADS_FOR_SEQUENCE.partition("=")
        for fixed in ("tp=1", f"cp={ranks}"):
            question = with_choice(question, parse_choice(fixed, excluded=False))
        return with_setting(question, name, value)

    yield Change("attention_by_sequence", text, apply)


def _techniques(layout: Layout) -> Iterator[Change]:
    """Ways to lay out states that the plan has, left out."""
    for axis in (one for one in AXES if one.name in TECHNIQUES and not one.is_off(layout)):
        off = parse_choice(f"{axis.name}={axis.codec.text(axis.off)}", excluded=False)
        text = f"without {axis.name}={axis.text(layout)}"
        yield Change(axis.name, text, partial(with_choice, choice=off))


def _experts(case: Case, layout: Layout) -> Iterator[Change]:
    """Other degrees of experts: the plan's left out, or, where the user fixed them, let go."""
    for name in ("ep", "etp") if case.job.model.moe else ():
        degree = f"{name}={getattr(layout, name)}"
        stated = next((one for one in case.options.fix if one.field == name), None)
        if stated is not None:
            free = partial(without_choice, choice=stated)
            yield Change(name, f"{name} not held to {getattr(layout, name)}", free)
        elif getattr(layout, name) > 1:
            other = parse_choice(degree, excluded=True)
            yield Change(name, f"without {degree}", partial(with_choice, choice=other))


def _training(case: Case) -> Iterator[Change]:
    """Settings that change the training, where the runtime has them and the job has none."""
    for name, value in TRAINS_OTHERWISE.items():
        absent = getattr(case.job.options, name) is None
        if absent and case.context.traits.sharding.zero_plus_plus:
            yield _otherwise(name, value)
    experts, options = case.context.traits.experts, case.job.options
    for kind, carrier in experts.narrow:
        if options.moe_dispatch_dtype is None and options.moe_dispatcher == carrier:
            yield _otherwise("moe_dispatch_dtype", kind)
    routing = options.routing.kind if options.routing else "balanced"
    if routing not in ("balanced", "load") and options.moe_capacity_factor is None:
        yield _otherwise("moe_capacity_factor", CAPACITY)


def _otherwise(name: str, value: str | float) -> Change:
    return Change(name, f"{name}={value}", partial(with_setting, name=name, value=value))


def _changes(case: Case) -> Iterator[Change]:
    """What a user could buy or choose, the likeliest first."""
    more, tenth = f"{ADDED_GIB:g} GiB more memory per GPU", "10 % more memory per GPU"
    yield Change("memory", more, partial(with_added_memory, gib=ADDED_GIB))
    yield Change("memory_tenth", tenth, partial(with_memory_by, factor=1.1))
    yield Change("nic", "NIC twice as fast", partial(with_nic, factor=2.0))
    yield from _sizes(case)
    yield from _batches(case)
    yield _domain(case)
    routing = case.job.options.routing
    if routing and routing.kind != "balanced":
        even = partial(with_setting, name="routing", value=None)
        yield Change("routing", "balanced experts (routing=balanced)", even)
        if routing.has_popular_experts and not case.job.options.permutes_experts:
            best = partial(with_setting, name="expert_placement", value="best")
            text = "experts on ranks by their rows (expert_placement=best, not held-out)"
            yield Change("expert_placement", text, best)
    if case.margin > 0:
        yield Change("margin", "no memory margin", without_margin)
    if case.job.reserve_bytes:
        text = f"no reserve of {case.job.reserve_bytes / GIB:.4g} GiB"
        yield Change("reserve", text, without_reserve)


def _domain(case: Case) -> Change:
    """Larger scale-up domains, and the settings that differ in them."""
    one = Change("domain", "scale-up domains of twice as many GPUs", partial(with_domain, factor=2))
    grown, own = applied(one, case), case.job.options.arguments()
    now = own if not isinstance(grown, Case) else grown.job.options.arguments()
    others = [now.get(name, f"no {text}") for name, text in own.items() if now.get(name) != text]
    return replace(one, text=f"{one.text}, with {' '.join(others)}") if others else one


def _settings(case: Case, layout: Layout) -> Iterator[Change]:
    """Settings dropped, then those that are off and mean something for the plan, then the best."""
    job, plain = case.job, case.context.traits
    for name, text in job.options.arguments().items():
        sized, usual = name == "bucket_mb", _usual_bucket(case, layout)
        drop = partial(with_setting, name=name, value=usual if sized else None)
        if drop(case).context.traits != plain:
            own = f"{name}={usual}, which is {plain.name}'s own"
            yield Change(name, own if sized else f"without {text}", drop)
    off = [one for one in plain.settings if getattr(job.options, one.name) is None]
    for one in off:
        turn_on = partial(with_setting, name=one.name, value=one.text.partition("=")[2])
        changed = turn_on(case)
        lacks = one.refused(changed.job) is not None
        if not lacks and changed.context.traits != plain and not _idle(one, changed.job, layout):
            yield Change(one.name, one.text, turn_on)
    if off:
        yield Change("settings", BEST_SETTINGS, with_all_settings)


def _idle(setting: Setting, job: Job, layout: Layout) -> bool:
    """Does a setting mean nothing for a layout?"""
    table = LayoutTable.of([layout])
    alone = {
        "moe_dispatcher": layout.ep * layout.etp == 1,
        "overlap_moe_a2a": layout.ep == 1,
        "overlap_shared_experts": layout.ep == 1,
        "overlap_tp_comm": layout.tp == 1,
    }
    idle = setting.idle is not None and bool(setting.idle.broken(job, table)[0])
    return idle or alone.get(setting.name, False)


def _islands(case: Case) -> Iterator[Change]:
    """Outer steps between the islands of a cluster, where it has some and they have none."""
    job, count = case.job, island_count(case.job.cluster)
    if count < 2 or job.outer is not None or job.model.trained is not None:
        return
    joined = job.model_copy(update={"outer": OuterSpec()})
    text = f"outer steps between {count} islands (--allow diloco)"
    yield Change("diloco", text, lambda question: question.with_job(island_job(joined)))


def _buckets(case: Case, layout: Layout) -> Iterator[Change]:
    """The size of gradient buckets that is best for the plan's layout, where another one is."""
    sharding, alone = case.context.traits.sharding, layout.dp * layout.cp == 1
    if case.job.options.bucket_mb is not None or alone or not sharding.bucket_elements:
        return
    sized = {size: with_setting(case, "bucket_mb", f"{size}") for size in BUCKETS}
    found = {size: kept_layout(one, layout) for size, one in sized.items()}
    steps = {size: one.estimate.step_time_s for size, one in found.items() if one}
    own = with_setting(case, "bucket_mb", _usual_bucket(case, layout))
    usual = kept_layout(own, layout)
    if steps and usual and min(steps.values()) < (1 - WORTH) * usual.estimate.step_time_s:
        best = f"{min(steps, key=steps.__getitem__)}"
        taken = partial(with_setting, name="bucket_mb", value=best)
        yield Change("bucket_mb", f"bucket_mb={best}", taken, base=usual)


def _usual_bucket(case: Case, layout: Layout) -> str:
    """The size that a runtime takes by itself, for without one a fitted share is used for all."""
    return f"{case.context.traits.usual_bucket_mb(layout.dp * layout.cp):.4g}"


def _splits(layout: Layout) -> Iterator[Change]:
    """What stages of unequal layers are worth, where the plan has them."""
    if layout.stages is not None:
        even = parse_choice("stages=even", excluded=False)
        yield Change("even", "the even split of layers", partial(with_choice, choice=even))


def _sizes(case: Case) -> Iterator[Change]:
    """One node more, with the batch and with its share of the batch; twice the cluster."""
    cluster, batch = case.job.cluster, case.job.training.global_batch_size
    gpus = cluster.num_gpus
    larger = gpus + cluster.groups[0].gpus_per_node
    grown, rest = divmod(batch * larger, gpus)
    more = partial(with_gpus, count=larger)
    if len(cluster.groups) == 1:
        yield Change("node", f"one node more ({larger:,} GPUs), same batch", more)
    if len(cluster.groups) == 1 and not rest:
        text = f"one node more, batch {grown:,}"
        yield Change("node_and_batch", text, lambda question: with_batch(more(question), grown))
    if len(cluster.groups) > 1 or larger != 2 * gpus:
        twice = f"{2 * gpus:,} GPUs, same batch"
        yield Change("gpus_double", twice, partial(with_gpus, count=2 * gpus))


def _batches(case: Case) -> Iterator[Change]:
    """Twice the batch, and half of it."""
    batch = case.job.training.global_batch_size
    sizes = {"batch_double": 2 * batch} | ({} if batch % 2 else {"batch_half": batch // 2})
    for name, size in sizes.items():
        yield Change(name, f"batch {size:,}", partial(with_batch, global_batch_size=size))


def _outer_steps(outer: OuterSpec | None) -> Iterator[Change]:
    """What links between islands, and other outer steps, would buy."""
    if outer is None or not outer.gb_per_s or not outer.every:
        return

    def change(name: str, text: str, **values: object) -> Change:
        changed = replaced(outer, **values)
        return Change(name, text, lambda one: one.with_job(replaced(one.job, outer=changed)))

    fast, rare, between = 2 * outer.gb_per_s, 2 * outer.every, outer.every // outer.fragments
    yield change("island_links", "links between islands twice as fast", gb_per_s=fast)
    yield change("outer_every", f"{rare:,} local steps between outer ones", every=rare)
    if outer.dtype == "fp32":
        yield change("outer_dtype", "outer gradients in 16 bits", dtype="bf16")
    if outer.overlap == "none" and between > 1:
        yield change("outer_overlap", "outer steps behind local ones", overlap=between - 1)
