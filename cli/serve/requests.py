"""What other programs ask: a model for every tool, whose fields are options of a command.

Descriptions are read by agents: each says the quantity, its unit and an example.
"""

from typing import Annotated, Literal

from pydantic import Field

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
    one_of,
)
from trainplan.cli.serve.job_request import OfJob, OfNodes


class SearchRequest(OfJob):
    """`plan search`."""

    seq_length: Size | None = Field(
        None,
        description="Tokens per sequence; only with objective `context` it is found.",
        examples=[8192],
    )
    objective: str = Field(
        "time",
        description="What is best: time (the fastest step), memory, cost, energy, gpus (the "
        "fewest that hold the job, and meet `deadline`) or context (the longest sequence).",
        json_schema_extra=one_of(*names.OBJECTIVES),
    )
    slack: str | None = Field(
        None,
        description="How much longer than the fastest a step may take: the answer is the simplest "
        "layout within it (1 %), with objective memory the one that needs least (2 %).",
        examples=["2%"],
    )
    deadline: str | None = Field(
        None, description="The run of `tokens` must end by then.", examples=["30d", "36h"]
    )
    fix: list[str] = Field([], description="Fields to hold.", examples=[["tp=8"]])
    exclude: list[str] = Field(
        [], description="Values to keep a field from.", examples=[["recompute=full"]]
    )
    trusted: bool = Field(
        default=False, description="Only layouts within what published runs measured."
    )
    trainer: str | None = Field(
        None,
        description="Only layouts and settings that this project has words for; null: all.",
        json_schema_extra=one_of(*names.TRAINERS, None),
    )
    all_nodes: bool = Field(
        default=False, description="Use all nodes of the cluster, though fewer may be better."
    )
    search_options: str = Field(
        "safe",
        description="Settings of the runtime that are searched: safe, which change no numerics; "
        "all; or none.",
        json_schema_extra=one_of(*names.LEVELS),
    )
    fit_chance: FitChance = names.FIT_CHANCE
    memory_margin: MemoryMargin | None = Field(None, description="In place of `fit_chance`.")
    top: int = Field(10, ge=1, le=100, description="Alternatives to list.")
    baseline: str | None = Field(
        None,
        description="A layout of yours to compare the answer with, as in `estimate`.",
        examples=["tp=8,pp=4,vpp=2"],
    )
    pareto: str | None = Field(
        None,
        description="Instead of one answer, all layouts that no other beats in two objectives.",
        examples=["time,memory", "cost,time"],
    )
    time_limit: TimeLimit = None


class EstimateRequest(OfJob):
    """`plan estimate`."""

    seq_length: Size = Field(description="Tokens per sequence.", examples=[8192])
    layout: Layout
    memory_margin: MemoryMargin = 0.0


class CheckRequest(OfNodes):
    """`plan check`."""

    script: Annotated[
        str,
        Apart(),
        Field(
            description="The text of a launch script or command, or of a configuration of "
            "torchtitan, DeepSpeed or Accelerate. It is read, never run.",
            examples=["torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32"],
        ),
    ]
    file_name: Annotated[
        str,
        Apart(),
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$",
            description="Its name; the ending says what it is: .sh, .json, .yaml, .toml or .py.",
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
    set: list[str] = Field(
        [],
        description="Values of variables that the script takes from elsewhere, NAME=VALUE.",
        examples=[["NNODES=8"]],
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
    train: str | None = Field(None, description="As in `search`.")
    seq_length: Size | None = Field(
        None, description="Tokens per sequence, for launches that do not say it."
    )
    global_batch_size: Size | None = Field(
        None, description="Sequences per step, for launches that do not say it."
    )
    runtime: str | None = Field(
        None,
        description="Runtime of the launch, where its program does not tell.",
        json_schema_extra=one_of(*names.RUNTIMES, None),
    )
    runtime_version: str | None = Field(
        None, description="Release of it that runs, where no container of the launch names it."
    )
    strict: bool = Field(
        default=False,
        description="An option that the release does not know, or that is missing, stops it.",
    )
    profile: Profiles = ()
    memory_margin: MemoryMargin = 0.0
    time_limit: TimeLimit = None


class ExplainRequest(Request):
    """`plan explain`."""

    plan: PlanGiven
    profile: Profiles = ()
    time_limit: TimeLimit = None


class WhyNotRequest(ExplainRequest):
    """`plan why-not`."""

    layout: Layout


class CompareRequest(Request):
    """`plan compare`."""

    first: PlanGiven
    second: PlanGiven
    profile: Profiles = ()


class SweepRequest(ExplainRequest):
    """`plan sweep`."""

    vary: list[str] = Field(
        description=f"KNOB=VALUES: gpus=64..4096 doubles, tp=1,2,4 lists; {', '.join(names.KNOBS)} "
        "(nic multiplies) and fields of a layout. The first is the curve, more give one each.",
        examples=[["gpus=64..4096"]],
    )
    weak: bool = Field(default=False, description="Grow the batch with the GPUs: weak scaling.")


class ReplanRequest(ExplainRequest):
    """`plan replan`."""

    lost: list[str] = Field(
        [],
        description="Nodes that are lost: how many, GROUP:N of a group (its GPU, or its place from "
        "0), or the name of one where the cluster has measured links.",
        examples=[["1"]],
    )
    cluster: Annotated[
        str | Given | None,
        Inline(),
        Field(description="In place of `lost`: what is left, or grown; as in `search`."),
    ] = None
    saved: str = Field(
        names.SAVED[0],
        description="How the checkpoint was saved: as the launch does, reshardable, or weights "
        "alone are loaded, which changes the training.",
        json_schema_extra=one_of(*names.SAVED),
    )
    global_batch_size: Size | None = Field(
        None, description="Sequences per step from now on; changes the training."
    )
    since_save: str | None = Field(
        None, description="Training since the last save, which is lost.", examples=["12m"]
    )
    restart: str | None = Field(
        None, description="From a start until training goes on.", examples=["10m"]
    )
    repair: str | None = Field(None, description="Until the nodes are back.", examples=["2h"])
    spare_nodes: int | None = Field(
        None, ge=0, description="Nodes that may take the place of the lost ones."
    )


class ExportRequest(Request):
    """`plan export`."""

    plan: PlanGiven
    candidate: int | None = Field(None, description="Rank of an alternative; null: the answer.")
    runtime: str | None = Field(
        None,
        description="Training runtime that reads the files; null: the plan's own.",
        json_schema_extra=one_of(*names.EXPORTERS, None),
    )
    trainer: str | None = Field(
        None,
        description="Write files of this project, over the plan's runtime; null: the runtime's.",
        json_schema_extra=one_of(*names.TRAINERS, None),
    )
    launcher: str = Field(
        "torchrun",
        description="What starts the ranks.",
        json_schema_extra=one_of(*names.LAUNCHERS),
    )
    trials: int | None = Field(
        None, description="With slurm: an array job that tries so many of the best layouts."
    )
    keys: str | None = Field(
        None,
        description="Instead of files, settings of this project over Megatron.",
        json_schema_extra=one_of(*names.KEY_TABLES, None),
    )
    additions: tuple[str, ...] = Field(
        (),
        alias="with",
        description="`operations`: what a production launch has as well.",
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
