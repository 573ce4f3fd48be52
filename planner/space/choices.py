"""All rules of a job in one list: what axes and runtime forbid, and what the user fixed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.axes import AXIS_OF_COLUMN, AXIS_OF_OPTION, AXIS_OF_SHORT, RULES
from trainplan.costmodel.base import SpecError, did_you_mean, shortened
from trainplan.costmodel.columns import BoolColumn, Column
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, evenly
from trainplan.costmodel.runtimes import RuntimeTraits, executed, traits_of
from trainplan.costmodel.shard_groups import shard_codes

MEMORY = "memory"
"""Name under which rows that do not fit are counted as refused."""
HOST_MEMORY, DRIVE_SPACE = "host_memory", "drive_space"
"""As above, of rows that fit on the GPUs, and whose node has not the memory, or the space."""


def legality_rules(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """What mathematics and the runtime forbid.

    What a runtime needs of a schedule is more than the schedule does, so it is checked first.
    """
    (own, rest), (stricter, others) = _of_schedules(RULES), _of_schedules(traits.rules)
    return (*rest, *stricter, *own, *executed(traits), *others)


def rules_of_job(job: Job) -> tuple[Rule, ...]:
    """As `legality_rules`, for who has the job alone."""
    return legality_rules(traits_of(job))


def _of_schedules(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Rules that read the schedule, and the others."""
    every = list(rules)
    some = [rule for rule in every if "schedule" in rule.columns]
    return some, [rule for rule in every if "schedule" not in rule.columns]


def broken_rules(job: Job, table: LayoutTable) -> tuple[tuple[Rule, ...], ...]:
    """For each row, the rules it breaks; empty for a legal layout."""
    verdicts = [(rule, rule.broken(job, table)) for rule in rules_of_job(job)]
    return tuple(
        tuple(rule for rule, broken in verdicts if broken[row]) for row in range(len(table))
    )


def ranks_straddle() -> Rule:
    """Leaves layouts of whole pipeline ranks in node groups to a search of their own.

    It prices each rank on the machine of its group, which is where such a rank lies.
    """

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Does every pipeline rank fit into one group?"""
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in job.cluster.groups]
        return np.asarray(np.all(whole, axis=0))

    return Rule(
        name="ranks_live_in_groups",
        columns=frozenset({"tp", "cp", "dp"}),
        broken=broken,
        says="searched separately, with every pipeline rank in one node group",
        source="ranks of tp x cp x dp GPUs lie in one group each where that divides every group",
    )


DERIVED: Mapping[str, Callable[[LayoutTable], Column | BoolColumn]] = {
    "stages": evenly,
    "shard": shard_codes,
}
"""What `--fix` and `--exclude` compare where it is no column: groups are those of every row."""
READ = {"shard": ("cp", "dp", "gtp", "dp_replicate", "replicas_share_optimizer", "zero_stage")}


@dataclass(frozen=True, slots=True)
class Choice:
    """A field of the layout held to one value (`--fix`) or kept from it (`--exclude`)."""

    field: str
    value: float
    text: str
    excluded: bool

    @property
    def anything(self) -> bool:
        """`--fix stages=free`, or of another that is tried on request: it refuses nothing."""
        return not self.excluded and self.value == AXIS_OF_COLUMN[self.field].codec.free

    @property
    def offloads(self) -> bool:
        """Does it name modules on the host, which no search tries by default?"""
        return self.field == "offload_modules" and bool(self.value) and not self.excluded

    @property
    def replicates(self) -> bool:
        """Does it name groups of shards under ZeRO-1, or for such that share the optimizer?"""
        off = {"dp_replicate": 1, "replicas_share_optimizer": 0, "shard": 0}.get(
            self.field, self.value
        )
        return self.value != off and not self.excluded

    @property
    def cuts_matrices(self) -> bool:
        """Does it name matrices cut beyond tp, which no search tries by default?"""
        return self.field in ("gtp", "egtp") and self.value != 1 and not self.excluded

    @property
    def only_even(self) -> bool:
        """Are the stages held to the even split?"""
        return self.field == "stages" and bool(self.value) != self.excluded

    @property
    def only_uneven(self) -> bool:
        """`--exclude stages=even`: it refuses every layout whose layers are not split yet."""
        return self.field == "stages" and bool(self.value) and self.excluded

    def rule(self) -> Rule:
        """As a rule the search applies like any other."""
        option = "--exclude" if self.excluded else "--fix"

        def broken(job: Job, table: LayoutTable) -> BoolColumn:
            if self.anything:
                return np.zeros(len(table), dtype=bool)
            plain = self.field == "shard" and not self.value  # none: the other fields say it
            derived = None if plain else DERIVED.get(self.field)
            column = derived(table) if derived else getattr(table, self.field)
            same = column == self.value
            return np.asarray(same if self.excluded else ~same)

        return Rule(
            name=f"{option} {self.text}",
            columns=frozenset({self.field, *READ.get(self.field, ())}),
            broken=broken,
            says=f"not allowed by {option} {self.text}",
            source="your command line",
            values=(self.value,),
        )


def allowed(job: Job, choices: Iterable[Choice]) -> Job:
    """A job whose search tries what some choice needs."""
    every = tuple(choices)
    offloads = job.may_offload_activations or any(choice.offloads for choice in every)
    replicates = job.may_replicate_shards or any(choice.replicates for choice in every)
    cuts = job.may_shard_matrices or any(choice.cuts_matrices for choice in every)
    return job.model_copy(
        update={
            "may_offload_activations": offloads,
            "may_replicate_shards": replicates,
            "may_shard_matrices": cuts,
        }
    )


def rules_of_grid(choices: Iterable[Choice]) -> tuple[Rule, ...]:
    """Rules of layouts whose layers are not split yet: all but the one that wants them uneven."""
    return tuple(choice.rule() for choice in choices if not choice.only_uneven)


def no_even_stages() -> Rule:
    """Refuses all layouts across node groups: their stages are even."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Everything is."""
        return np.ones(len(table), dtype=bool)

    return Rule(
        name="--exclude stages=even",
        columns=frozenset({"tp"}),
        broken=broken,
        says="stages across node groups are even",
        source="your command line",
    )


def parse_choice(text: str, *, excluded: bool) -> Choice:
    """Read `tp=8`, `recompute=full`, `sequence_parallel=true`, `offload=0.5`, ...

    Raises:
        SpecError: Unknown field or value; the message lists what is allowed.
    """
    field, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"{text!r}: expected FIELD=VALUE such as tp=8")
    if "=" in value:
        raise SpecError(
            f"{text!r}: expected one field, such as {field}={value.partition(',')[0]}: "
            "repeat the option for each"
        )
    axis = AXIS_OF_OPTION.get(field) or AXIS_OF_SHORT.get(field)
    if axis is None:
        known = ", ".join(sorted(AXIS_OF_OPTION))
        similar = did_you_mean("layout field", field, AXIS_OF_OPTION)
        unknown = f"{shortened(text)!r}: no field {shortened(field)!r}:"
        raise SpecError(" ".join(filter(None, (unknown, similar, f"fields are {known}"))))
    try:
        return Choice(axis.column, axis.codec.chosen(field, value), text, excluded)
    except SpecError as error:
        raise SpecError(f"{text!r}: {error}") from error
