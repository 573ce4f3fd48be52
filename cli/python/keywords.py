"""The keywords of every call: options of the command by their names, `-` as `_`.

What each means is on the page of the command, as in `plan search --help`. Numbers with a unit are
texts (`"2w"`, `"30GiB"`), sizes numbers or texts (`8192`, `"8k"`). What may be given several times
is one value, a list of them, or for NAME=VALUE a mapping.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Required, TypedDict

from trainplan import planner
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.profiles import Profile

File = str | PathLike[str]
Model = File | Mapping[str, Any] | ModelSpec
"""A preset, its name on Hugging Face, the path of a config.json or its content, or a value."""
Cluster = File | Mapping[str, Any] | ClusterSpec
"""`8x8:h100-sxm`, `64xh100`, the path of a document or its content, or a value."""
PlanGiven = planner.Plan | File | Mapping[str, Any]
"""A plan, the path of its document, or its content."""
LayoutGiven = str | Mapping[str, Any] | Layout | planner.Candidate
"""`tp=8,pp=4` or its mapping, a layout as it was printed, `@plan.json:3`, or a value."""
Size = int | str
Number = float | str
Texts = str | Sequence[str]
Pairs = Texts | Mapping[str, Any]
"""`tp=8`, several of them, or `{"tp": 8}`."""
Profiles = File | Mapping[str, Any] | Profile | Sequence[File | Mapping[str, Any] | Profile]


class NodeKeywords(TypedDict, total=False):
    """Of a cluster: its network, power and failures."""

    nic: str
    power_limit: str
    mtbf_node: str
    restart: str
    checkpoint: str
    save: str
    spare_nodes: int
    repair: str
    profile: Profiles


class JobKeywords(NodeKeywords, total=False):
    """What is trained, where and with what."""

    tower: str
    nodes: int
    gpus: int
    gpu: str
    price: Number
    global_batch_size: Required[Size]
    seq_length: Size
    lengths: File | Mapping[str, int]
    packing: str
    precision: str
    optimizer: str
    state_precision: str
    tokens: Number
    train: str
    loss_tokens: float
    runtime: str
    runtime_version: str
    option: Pairs
    reserve: str
    reserve_host: str
    allow: Texts
    islands: int
    outer_every: int | str
    outer_dtype: str
    outer_overlap: int | str
    outer_fragments: int
    carbon: Number
    pue: float
    memory_margin: float


class SearchKeywords(JobKeywords, total=False):
    """How it is searched, what is best, and where the answer is written."""

    offers: File
    objective: str
    slack: str | float
    """`2%`, or its fraction 0.02."""
    deadline: str
    all_nodes: bool
    fix: Pairs
    exclude: Pairs
    trusted: bool
    trainer: str
    search_options: str
    fit_chance: float
    fit_p99: bool
    top: int
    time_limit: Number
    workers: int
    baseline: LayoutGiven
    verbose: bool
    output: File
    report: File
    force: bool


class CheckKeywords(NodeKeywords, total=False):
    """What a launch does not state."""

    set: Pairs
    cluster: Cluster
    model: Model
    train: str
    seq_length: Size
    global_batch_size: Size
    runtime: str
    runtime_version: str
    strict: bool
    memory_margin: float
    time_limit: Number
    write: File
    force: bool


class PlanKeywords(TypedDict, total=False):
    """Of a question about plans; each takes some of them."""

    profile: Profiles
    time_limit: Number
    workers: int
    weak: bool
    placement: File
    report: File
    force: bool


class ExportKeywords(TypedDict, total=False):
    """Of `export`."""

    candidate: int
    trainer: str
    launcher: str
    trials: int
    keys: str
    one_rank: int
    with_: Texts
    force: bool
