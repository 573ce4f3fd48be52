"""What other programs send: a model for every tool, whose fields are options of a command.

Descriptions are read by agents: each states the quantity, its unit and an example.
"""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from trainplan.cli.options import names
from trainplan.cli.serve.fields import (
    Apart,
    FitChance,
    Given,
    Inline,
    Layout,
    MemoryMargin,
    New,
    PlanGiven,
    Positional,
    Profiles,
    Request,
    Size,
    Subcommand,
    TimeLimit,
    optional,
    seldom,
)
from trainplan.cli.serve.job_request import OfJob, OfNodes
from trainplan.costmodel.base import shortened


class SearchRequest(OfJob):
    """`plan search`."""

    seq_length: Size | None = optional(
        "Tokens per sequence; only with objective `context` it is found.", 8192
    )
    objective: str = optional(
        "What is best: time (the fastest step), memory, cost, energy, gpus (the "
        "fewest that hold the job, and meet `deadline`) or context (the longest sequence).",
        default="time",
        enum=names.OBJECTIVES,
    )
    slack: str | None = seldom(
        "How much longer than the fastest a step may take: the answer is the simplest "
        "layout within it (1 %), with objective memory the one that needs least (2 %).",
        "2%",
    )
    deadline: str | None = optional("The run of `tokens` must end by then.", "30d", "36h")
    fix: list[str] = optional("Fields to hold.", ["tp=8"], default=[])
    exclude: list[str] = optional("Values to keep a field from.", ["recompute=full"], default=[])
    trusted: bool = optional("Only layouts within what published runs measured.", default=False)
    trainer: str | None = seldom(
        "Only layouts and settings that this project has words for; null: all.",
        enum=(*names.TRAINERS, None),
    )
    all_nodes: bool = seldom(
        "Use all nodes of the cluster, though fewer may be better.", default=False
    )
    search_options: str = seldom(
        "Settings of the runtime that are searched: safe, which change no numerics; all; or none.",
        default="safe",
        enum=names.LEVELS,
    )
    fit_chance: FitChance = names.FIT_CHANCE
    fit_p99: bool = seldom(
        "The answer must fit in 99 of 100 steps, too, as `routing` has the load of experts shift.",
        default=False,
    )
    memory_margin: MemoryMargin | None = seldom("In place of `fit_chance`.")
    top: int = optional("Alternatives to list.", default=10, ge=1, le=100)
    baseline: str | None = optional(
        "A layout of yours to compare the answer with, as in `estimate`.", "tp=8,pp=4,vpp=2"
    )
    pareto: str | None = optional(
        "Instead of one answer, all layouts that no other beats in two objectives.",
        "time,memory",
        "cost,time",
    )
    time_limit: TimeLimit = None


class EstimateRequest(OfJob):
    """`plan estimate`."""

    seq_length: Size = Field(description="Tokens per sequence.", examples=[8192])
    layout: Layout
    memory_margin: MemoryMargin = 0.0


FILE_NAME = re.compile(r"\S+\.(?:sh|bash|sbatch|slurm|json|ya?ml|toml|py)")


class CheckRequest(OfNodes):
    """`plan check`."""

    INTENDED: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("file", "path", "launch", "command", "text"),
        "give the text of the launch as script, and its name as file_name",
    )

    script: Annotated[
        str,
        Apart(),
        Field(
            description="The text of a launch script or command, or of a configuration of "
            "torchtitan, DeepSpeed or Accelerate. It is read, never run.",
            examples=["torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32"],
        ),
    ]

    @field_validator("script")
    @classmethod
    def _is_a_text(cls, script: str) -> str:
        if FILE_NAME.fullmatch(script.strip()):
            raise ValueError(
                f"must be the text of a launch, and {shortened(script.strip())!r} is a name: give "
                "what that file holds, with its name as file_name"
            )
        return script

    file_name: Annotated[
        str,
        Apart(),
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$",
            description="Its name; the ending names the format: .sh, .json, .yaml, .toml or .py.",
            examples=["train.sh", "ds_config.json"],
        ),
    ] = "launch.sh"
    files: Annotated[
        dict[str, str],
        Apart(),
        Field(
            description="Texts of other files that it names, by their names.",
            examples=[{"ds_config.json": '{"zero_optimization": {"stage": 2}}'}],
        ),
    ] = {}  # noqa: RUF012 (pydantic copies it)
    set: list[str] = optional(
        "Values of variables that the script takes from elsewhere, NAME=VALUE.",
        ["NNODES=8"],
        default=[],
    )
    cluster: Annotated[
        str | Given | None,
        Inline(),
        Field(
            description="As in `search`; default: as many h100-sxm as the launch starts ranks.",
            examples=["8x8:h100-sxm"],
        ),
    ] = None
    model: Annotated[
        str | Given | None,
        Inline(),
        Field(description="As in `search`, for launches that name no shape."),
    ] = None
    train: str | None = optional("As in `search`.")
    seq_length: Size | None = optional("Tokens per sequence, for launches that do not state it.")
    global_batch_size: Size | None = optional(
        "Sequences per step, for launches that do not state it."
    )
    runtime: str | None = optional(
        "Runtime of the launch, where its program does not show it.",
        brief="As in `search`, where the program of the launch does not show it.",
        enum=(*names.RUNTIMES, None),
    )
    runtime_version: str | None = optional(
        "Release of it that runs, where no container of the launch names it."
    )
    strict: bool = optional(
        "An option that the release does not know, or that is missing, stops it.", default=False
    )
    profile: Profiles = ()
    memory_margin: MemoryMargin = 0.0
    time_limit: TimeLimit = None


class _PlanRequest(Request):
    """A plan, and what was measured."""

    plan: PlanGiven
    profile: Profiles = ()
    time_limit: TimeLimit = None


class ExplainRequest(_PlanRequest):
    """`plan explain`."""

    placement: Annotated[
        str | None,
        New(),
        Field(
            description="Name of a new CSV file in the folder of --write-files: where experts "
            "should lie."
        ),
    ] = None


class WhyNotRequest(_PlanRequest):
    """`plan why-not`."""

    layout: Layout


class CompareRequest(Request):
    """`plan compare`."""

    first: PlanGiven
    second: PlanGiven
    profile: Profiles = ()


class SweepRequest(_PlanRequest):
    """`plan sweep`."""

    vary: list[str] = Field(
        description=f"KNOB=VALUES: gpus=64..4096 doubles, tp=1,2,4 lists; {', '.join(names.KNOBS)} "
        "(nic multiplies) and fields of a layout. The first is the curve, more give one each.",
        examples=[["gpus=64..4096"]],
    )
    weak: bool = optional("Grow the batch with the GPUs: weak scaling.", default=False)


class ReplanRequest(_PlanRequest):
    """`plan replan`."""

    lost: list[str] = optional(
        "Nodes that are lost: how many, GROUP:N of a group (its GPU, or its place from "
        "0), or the name of one where the cluster has measured links.",
        ["1"],
        default=[],
    )
    cluster: Annotated[
        str | Given | None,
        Inline(),
        Field(description="In place of `lost`: what is left, or grown; as in `search`."),
    ] = None
    saved: str = optional(
        "How the checkpoint was saved: as the launch does, reshardable, or weights "
        "alone are loaded, which changes the training.",
        default=names.SAVED[0],
        enum=names.SAVED,
    )
    global_batch_size: Size | None = optional(
        "Sequences per step from now on; changes the training."
    )
    since_save: str | None = optional("Training since the last save, which is lost.", "12m")
    restart: str | None = optional("From a start until training goes on.", "10m")
    repair: str | None = optional("Until the nodes are back.", "2h")
    spare_nodes: int | None = optional("Nodes that may take the place of the lost ones.", ge=0)


class ExportRequest(Request):
    """`plan export`."""

    plan: PlanGiven
    candidate: int | None = optional("Rank of an alternative; null: the answer.")
    runtime: str | None = optional(
        "Training runtime that reads the files; null: the plan's own.",
        brief="Training runtime that reads the files; left out: the plan's own.",
        enum=(*names.EXPORTERS, None),
    )
    trainer: str | None = optional(
        "Write files of this project, over the plan's runtime; null: the runtime's.",
        enum=(*names.TRAINERS, None),
    )
    launcher: str = optional("What starts the ranks.", default="torchrun", enum=names.LAUNCHERS)
    trials: int | None = optional(
        "With slurm: an array job that tries so many of the best layouts."
    )
    keys: str | None = optional(
        "Instead of files, settings of this project over Megatron.",
        enum=(*names.KEY_TABLES, None),
    )
    additions: tuple[str, ...] = optional(
        "`operations`: what a production launch has as well.", default=(), alias="with"
    )
    output_dir: Annotated[
        str | None, New(), Field(description="Name of a new folder in that of --write-files.")
    ] = None


class ReportRequest(Request):
    """`plan report`."""

    document: Annotated[
        str | Given,
        Inline(),
        Positional(),
        Field(
            description="A plan, a profile, an answer of compare, sweep or search with `pareto`.",
            examples=["plan-1"],
        ),
    ]
    output: Annotated[
        str, New(), Field(description="Name of a new HTML file in the folder of --write-files.")
    ]
    profile: Profiles = ()


class CatalogRequest(Request):
    """`plan catalog`."""

    kind: Annotated[
        Literal["gpus", "models", "hosts", "methods", "optimizers", "clusters"],
        Subcommand(),
        Field(description="What to list; methods are those of offload."),
    ]
    name: Annotated[
        str | Given | None,
        Inline(),
        Positional(),
        Field(
            description="One of the GPUs or models, with every number and its source; a model may "
            "also be a document, as in `search`.",
            examples=["h100-sxm", "llama3-70b"],
        ),
    ] = None


class SchemaRequest(Request):
    """`plan schema`."""

    document: Annotated[
        str | None,
        Positional(),
        Field(
            description="Such as search-request: what `search` takes; left out: all names.",
            examples=["search-request", "plan", "cluster"],
        ),
    ] = None
