"""A question with one thing changed; every changed job is one a user could write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from pydantic import ValidationError

from trainplan.costmodel import catalog
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.hardware import ClusterSpec, NicSpec, NodeGroup
from trainplan.costmodel.job import Job, with_trained
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import Spec, first_complaint
from trainplan.costmodel.uncertainty import FIT_CHANCE, margin_of
from trainplan.planner.plan import SearchOptions
from trainplan.planner.space import Choice

SpecT = TypeVar("SpecT", bound=Spec)


@dataclass(frozen=True, slots=True)
class Case:
    """All a search is given: the job, what it must respect, what was measured."""

    job: Job
    options: SearchOptions
    measured: Measured = NOTHING

    @property
    def context(self) -> Context:
        """The job resolved.

        Raises:
            PlanError: As `context_for`.
        """
        return context_for(self.job, self.measured)

    @property
    def margin(self) -> float:
        """Share of device memory that must stay free."""
        return self.options.margin(self.job)

    def near(self, layout: Layout) -> Case:
        """The same, its answer maybe near to a layout."""
        return replace(self, options=self.options.model_copy(update={"near": layout}))

    def with_job(self, job: Job) -> Case:
        """The same of another job."""
        return replace(self, job=job)


def with_memory(case: Case, gib: float) -> Case:
    """Usable memory of every GPU, GiB."""
    return _with_groups(case, lambda group: replaced(group, memory_gib=gib))


def with_added_memory(case: Case, gib: float) -> Case:
    """More usable memory on every GPU, GiB."""
    return _with_groups(case, lambda group: replaced(group, memory_gib=memory_gib(group) + gib))


def with_memory_by(case: Case, factor: float) -> Case:
    """Usable memory of every GPU times a factor."""
    return _with_groups(case, lambda group: replaced(group, memory_gib=memory_gib(group) * factor))


def memory_gib(group: NodeGroup) -> float:
    """Usable memory of one GPU of a group, GiB."""
    return group.memory_gib or catalog.device(group).memory_gib.value


def with_nic(case: Case, factor: float) -> Case:
    """Scale-out bandwidth times a factor, measured or of the datasheet.

    Raises:
        SpecError: The cluster is one scale-up domain, or the NIC of its nodes is unknown.
    """
    machine = case.context.machine
    if machine.num_gpus <= machine.domain_gpus:
        raise SpecError("the cluster is one scale-up domain: nothing uses the NIC")
    changed = _with_groups(case, lambda group: replaced(group, nic=_nic(group, factor)))
    profile = case.measured.profile
    if profile is None or profile.nic_gb_per_s is None:
        return changed
    value = profile.nic_gb_per_s.value * factor
    nic = replaced(profile.nic_gb_per_s, value=value)
    faster = profile.model_copy(update={"nic_gb_per_s": nic})
    return replace(changed, measured=replace(case.measured, profile=faster))


def _nic(group: NodeGroup, factor: float) -> NicSpec:
    """The group's NIC, or that of the GPU's usual node, with another bandwidth."""
    if group.nic:
        return replaced(group.nic, gb_per_s=group.nic.gb_per_s * factor)
    usual = catalog.device(group).nic_gb_per_s
    if usual is None:
        raise SpecError(
            f"the NIC of nodes with {group.gpu} is unknown: give a cluster file with "
            "`nic: {per_node, gb_per_s}`"
        )
    return NicSpec(per_node=group.gpus_per_node, gb_per_s=usual.value * factor)


def with_domain(case: Case, factor: int) -> Case:
    """Scale-up domains of more GPUs; a stated setting that none so large starts gives way.

    Raises:
        SpecError: The whole cluster is one domain already.
    """
    machine = case.context.machine
    if machine.num_gpus <= machine.domain_gpus:
        raise SpecError("the cluster is one scale-up domain already")
    gpus = machine.domain_gpus * factor
    grown = _with_groups(case, lambda group: replaced(group, nvlink_domain=gpus))
    for name, text in case.job.options.arguments().items():
        values = [one for one in case.context.traits.settings if one.name == name]
        own = next((one for one in values if one.text == text), None)
        if own and own.refused(grown.job) and not own.refused(case.job):
            starts = [one.value for one in values if not one.refused(grown.job)]
            grown = with_setting(grown, name, starts[0] if starts else None)
    return grown


def with_gpus(case: Case, count: int) -> Case:
    """As many GPUs in all, in nodes of the same kind; below one node, a part of it.

    Raises:
        SpecError: They are no whole number of nodes of every group.
    """
    cluster = case.job.cluster
    if len(cluster.groups) == 1 and 0 < count < cluster.groups[0].gpus_per_node:
        part = replaced(cluster.groups[0], num_nodes=1, gpus_per_node=count)
        return _with_cluster(case, _regrouped(cluster, (part,)))

    def resized(group: NodeGroup) -> NodeGroup:
        nodes, rest = divmod(group.num_nodes * count, cluster.num_gpus)
        if rest or not nodes:
            raise SpecError(
                f"{count:,} GPUs are no whole number of nodes: choose a multiple of "
                f"{cluster.num_gpus // _common_nodes(cluster):,}"
            )
        return replaced(group, num_nodes=nodes)

    return _with_groups(case, resized)


def _common_nodes(cluster: ClusterSpec) -> int:
    """By how much the cluster can be divided, all groups the same."""
    counts = [group.num_nodes for group in cluster.groups]
    return max(n for n in range(1, min(counts) + 1) if not any(c % n for c in counts))


def with_failures(case: Case, values: Mapping[str, object]) -> Case:
    """Other values of what the cluster states of failures and saves.

    Raises:
        SpecError: There is no such cluster, or it states none.
    """
    cluster = case.job.cluster
    if cluster.failures is None:
        raise SpecError("the cluster states no failures: give --mtbf-node")
    return _with_cluster(case, replaced(cluster, failures=replaced(cluster.failures, **values)))


def with_batch(case: Case, global_batch_size: int) -> Case:
    """Sequences per optimizer step."""
    training = replaced(case.job.training, global_batch_size=global_batch_size)
    return case.with_job(replaced(case.job, training=training))


def with_sequence(case: Case, seq_length: int) -> Case:
    """Tokens per sequence."""
    training = replaced(case.job.training, seq_length=seq_length)
    return case.with_job(replaced(case.job, training=training))


def with_gpu(case: Case, name: str) -> Case:
    """GPUs of another kind in as many nodes; NICs stay where the cluster names them."""
    usual: dict[str, object] = {"device": None, "memory_gib": None, "nvlink_domain": None}
    return _with_groups(case, lambda group: replaced(group, gpu=name, **usual))


def with_precision(case: Case, precision: str) -> Case:
    """Another number format of the matrix products."""
    training = replaced(case.job.training, precision=precision)
    return case.with_job(replaced(case.job, training=training))


class Lighter(NamedTuple):
    """States that take less memory, by the option that sets them."""

    field: str
    usual: str
    value: str
    words: str
    changes: str = " (changes the training)"

    @property
    def option(self) -> str:
        """As a user writes it, and whether it trains otherwise."""
        return f"--{self.field.replace('_', '-')} {self.value}{self.changes}"

    def applied(self, case: Case) -> Case:
        """The question with these states; the same one where its states are not the usual ones.

        Raises:
            PlanError: The runtime does not have them, or not with what else the job states.
        """
        job, training = case.job, case.job.training
        trained = job.model.trained
        own = {
            "state_precision": training.state_precision,
            "optimizer": training.optimizer.text,
            "train": trained.text if trained else "full",
        }
        if own[self.field] != self.usual:
            return case
        if self.field == "train":
            job = replaced(job, model=with_trained(job.model, self.value))
        else:
            job = replaced(job, training=replaced(training, **{self.field: self.value}))
        traits_of(job)
        return case.with_job(job)


LIGHTER = (
    Lighter("state_precision", "o0", "bf16", "keep states in bf16"),
    Lighter("optimizer", "adamw", "adamw8bit", "keep moments in 8 bits", ""),
    Lighter("train", "full", "lora:rank=16", "train adapters alone"),
    Lighter("train", "full", "qlora:rank=16", "train adapters alone, over 4-bit weights"),
    Lighter("train", "full", "lora:rank=16,modules=attention", "train adapters of attention alone"),
)
"""Of one field the first that helps is offered."""


def with_setting(case: Case, name: str, value: str | float | None) -> Case:
    """A setting of the runtime, as `--option` takes it, added to the job's; None drops it."""
    options = replaced(case.job.options, **{name: value})
    return case.with_job(replaced(case.job, options=options))


def with_all_settings(case: Case) -> Case:
    """Settings that the job does not state are searched, those of stored precision too.

    No limit of published runs holds them: what no run had may be the best.
    """
    free = {"search_options": "all", "published": False, "generation": False}
    return replace(case, options=case.options.model_copy(update=free))


def without_host_reserve(case: Case) -> Case:
    """The question with the whole memory of every host."""
    return case.with_job(replaced(case.job, reserve_host_bytes=0))


def without_reserve(case: Case) -> Case:
    """No memory is left to another tenant."""
    return case.with_job(replaced(case.job, reserve_bytes=0))


def without_margin(case: Case) -> Case:
    """All of the device memory may be used."""
    options = case.options.model_copy(update={"memory_margin": 0.0})
    return replace(case, options=options)


def with_usual_chance(case: Case) -> Case:
    """What is offered has the chance to fit that a search takes, at least."""
    margin = max(case.margin, margin_of(case.job, FIT_CHANCE))
    return replace(case, options=case.options.model_copy(update={"memory_margin": margin}))


def without_trust(case: Case) -> Case:
    """Layouts outside what was measured, too."""
    return replace(case, options=case.options.model_copy(update={"trusted": False}))


def with_choice(case: Case, choice: Choice) -> Case:
    """One more field held to a value, or with a value left out."""
    if choice.excluded:
        excluded = {"exclude": (*case.options.exclude, choice)}
        return replace(case, options=case.options.model_copy(update=excluded))
    fixed = tuple(c for c in case.options.fix if c.field != choice.field)
    options = case.options.model_copy(update={"fix": (*fixed, choice)})
    return replace(case, options=options)


def without_choice(case: Case, choice: Choice) -> Case:
    """A field let go."""
    kept = {
        "fix": tuple(c for c in case.options.fix if c is not choice),
        "exclude": tuple(c for c in case.options.exclude if c is not choice),
    }
    return replace(case, options=case.options.model_copy(update=kept))


def replaced(spec: SpecT, **values: object) -> SpecT:
    """A spec with other values of some fields, checked as a new one.

    Raises:
        SpecError: A value is out of its range.
    """
    try:
        return type(spec).model_validate({**dict(spec), **values})
    except ValidationError as error:
        raise SpecError(first_complaint(error).text) from error


def _with_groups(case: Case, change: Callable[[NodeGroup], NodeGroup]) -> Case:
    cluster = case.job.cluster
    groups = tuple(change(group) for group in cluster.groups)
    return _with_cluster(case, _regrouped(cluster, groups))


def _regrouped(cluster: ClusterSpec, groups: tuple[NodeGroup, ...]) -> ClusterSpec:
    """Links were measured between the nodes there are: with more or fewer, none are known."""
    same = [g.num_nodes for g in groups] == [g.num_nodes for g in cluster.groups]
    return replaced(cluster, groups=groups, links=cluster.links if same else None)


def _with_cluster(case: Case, cluster: ClusterSpec) -> Case:
    return case.with_job(replaced(case.job, cluster=cluster))
