"""Documents of `plan catalog`."""

from dataclasses import dataclass
from typing import Any

from trainplan.costmodel.catalog import SourcedHost
from trainplan.costmodel.hardware import FittedConstants, GpuSpec
from trainplan.costmodel.presets import Machine
from trainplan.planner.documents import Document, WrittenModel, document_class

GpuEntry = document_class(
    "GpuEntry",
    GpuSpec,
    "Every number of a GPU with its source.",
    name=str,
    fitted=FittedConstants,
    stand_in=str | None,
)
HostEntry = document_class("HostEntry", SourcedHost, "A host of a usual node.", name=str)
ModelEntry = document_class(
    "ModelEntry",
    WrittenModel,
    "A preset, with its names on Hugging Face.",
    source=str | None,
    repositories=tuple[str, ...],
)
ReadModel = document_class(
    "ReadModel",
    WrittenModel,
    "A model and how it was read: `read`, `assumed` and `ignored` fields of its file.",
    source=str | None,
    read=dict[str, Any],
    assumed=dict[str, Any],
    ignored=tuple[str, ...],
    notes=tuple[str, ...],
)


@dataclass(frozen=True, kw_only=True)
class Kept(Document):
    """What a method keeps where."""

    place: str
    term: str
    bytes_per_parameter: float


@dataclass(frozen=True, kw_only=True)
class MethodEntry(Document):
    """A published method of offload."""

    name: str
    what: str
    """It keeps where."""
    runtime: str | None
    """A living runtime that has it, with its option."""
    priced_as: str | None
    """Id of the runtime that is priced so; null: none is."""
    keeps: tuple[Kept, ...]
    source: str


@dataclass(frozen=True, kw_only=True)
class OptimizerEntry(Document):
    """An optimizer."""

    name: str
    settings: tuple[str, ...]
    """Names that it takes."""
    state: str
    """Of a matrix, by its shape."""
    shown_matrix: tuple[int, ...]
    """Of which `bytes_per_param` is."""
    shown_rank: int | None
    bytes_per_param: float
    keeps_fp32_weights: bool
    work: str | None
    collectives: str | None
    needs_whole_matrices: bool
    updates_by_layer: bool
    changes_training: str | None
    runtimes: dict[str, str]
    """Those that have it, with their word for it."""
    source: str


@dataclass(frozen=True, kw_only=True)
class ShortForm(Document):
    """The usual node of a GPU."""

    short_form: str
    """As `--cluster` takes it, of 64 GPUs."""
    gpus_per_node: int
    nvlink_domain: int
    nic_gb_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Gpus(Document):
    """All GPUs by name."""

    gpus: dict[str, GpuEntry]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True)
class Models(Document):
    """All presets by name."""

    models: dict[str, ModelEntry]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True)
class Hosts(Document):
    """All hosts by name."""

    hosts: dict[str, HostEntry]  # type: ignore[valid-type]


@dataclass(frozen=True, kw_only=True)
class Methods(Document):
    """All methods by name."""

    methods: dict[str, MethodEntry]


@dataclass(frozen=True, kw_only=True)
class Optimizers(Document):
    """All optimizers by name."""

    optimizers: dict[str, OptimizerEntry]


@dataclass(frozen=True, kw_only=True)
class Clusters(Document):
    """Short forms of clusters."""

    clusters: tuple[ShortForm, ...]
    machines: dict[str, Machine]
    """Machines of clouds and vendors, by name."""


CatalogDocument = Gpus | Models | Hosts | Methods | Optimizers | Clusters | GpuEntry | ReadModel
