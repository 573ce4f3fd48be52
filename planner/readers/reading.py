"""What was read of someone's launch: job, layout, where each field stood, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.spec import ClusterSpec, Job, Layout, ModelSpec

Origin = Literal["stated", "default", "derived", "assumed"]
"""Written in the launch; what the runtime takes where nothing is; computed from others, such as dp;
taken by us because nothing says it, such as the GPU, and named so."""
Verdict = Literal["illegal", "ignored", "unread", "unmodelled"]
"""The runtime stops; it takes no notice; we cannot know without running the script; we can read it,
but the cost model has no such thing."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands."""

    file: str | None
    """As the user named it; null: the command line itself."""
    line: int | None
    """From 1; null where lines mean nothing."""


COMMAND_LINE = Place(None, None)


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command after expansion, as far as it goes without running anything."""

    text: str
    place: Place
    unresolved: tuple[str, ...] = ()
    """Variables and constructs that it depends on and that only a run would tell, as written:
    `$(hostname)`, `NODE_RANK`. Where there are some, `text` holds them unexpanded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, ignored or unread."""

    cause: str
    """A name that stays: `tp_divides_heads`; of a layout's rule, the name of that rule."""
    verdict: Verdict
    says: str
    """What, and what to do: one sentence."""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One training command: what every rank runs, and on how many of them."""

    starter: str
    """`torchrun`, `srun`, `deepspeed`, `accelerate`, `mpirun` or `python`."""
    program: Word
    """A file, or a module where `is_module`."""
    is_module: bool
    arguments: tuple[Word, ...]
    """Of the program."""
    environment: Mapping[str, Word]
    """Variables that the script exports or sets before the command."""
    nodes: Word | None = None
    """Null: not stated; torchrun and python then take 1."""
    gpus_per_node: Word | None = None
    """Ranks on each node; null: not stated; torchrun and python then take 1, others all GPUs."""
    ranks: Word | None = None
    """All ranks, of starters that count them so: `mpirun -np`, `srun -n`, `--num_processes` of
    Accelerate."""
    starter_arguments: tuple[Word, ...] = ()
    """Other words for the starter, such as `--config_file x.yaml` of Accelerate."""
    problems: tuple[Problem, ...] = ()
    """Of the script itself: what was not taken or not read, and where."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user says beside the launch."""

    cluster: ClusterSpec | None = None
    model: ModelSpec | None = None
    """For launches that name no shape."""
    seq_length: int | None = None
    global_batch_size: int | None = None
    text_of: Callable[[str], str | None] = lambda path: None
    """Text of a file that the launch names, beside it; null: there is none."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the job or the layout, and where it comes from."""

    name: str
    """`layout.tp`, `training.seq_length`, `model.hidden_size`, `options.moe_dispatcher`,
    `cluster.num_nodes`: names of the specifications."""
    value: object
    """As in JSON."""
    origin: Origin
    written: str = ""
    """The runtime's own words: `--tensor-model-parallel-size 8`; of a default, its option."""
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A launch as a question and an answer of ours."""

    runtime: str
    runtime_version: str
    """Release whose rules were applied."""
    job: Job | None
    """Null: too little could be read; `problems` says what."""
    layout: Layout | None
    fields: tuple[Field, ...]
    problems: tuple[Problem, ...]
    own_name: Callable[[str], str] = str
    """The launch's name of a setting, by that which our exporter writes: a recipe may have its keys
    elsewhere."""

    @property
    def legal(self) -> bool:
        """Would the runtime start it, as far as was read?"""
        return not any(problem.verdict == "illegal" for problem in self.problems)


@dataclass(frozen=True, slots=True)
class Reader:
    """One runtime: which launches are its own, and what they say."""

    runtime: str
    recognises: Callable[[Launch], bool]
    """Is it a launch of this runtime? Seen from the program and its arguments alone."""
    read: Callable[[Launch, Asked], Reading]
    """Raises a `PlanError` only where nothing can be said at all."""
