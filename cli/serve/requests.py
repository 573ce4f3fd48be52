"""What other programs ask: a model for every tool, whose fields are options of a command.

Descriptions are read by agents: each says the quantity, its unit and an example.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainplan.cli.options.names import (
    DEFAULT_RUNTIME,
    LARGEST_SIZE,
    LEVELS,
    OBJECTIVES,
    PACKINGS,
    PRECISIONS,
    RUNTIME_OPTIONS,
    RUNTIMES,
    STATE_PRECISIONS,
)

Given = dict[str, Any]
"""A document that is given inline."""


def one_of(*names: str | None) -> dict[str, Any]:
    """What a schema says of a field that takes some names alone; the command refuses others."""
    return {"enum": list(names)}


class Positional:
    """Marks a field that is typed without the name of an option."""


class Subcommand:
    """Marks a field that is typed after the command."""


class Inline:
    """Marks a field that is a name, or a document that is given inline."""


class Apart:
    """Marks a field that is for the server, not for the command."""


Size = Annotated[int, Field(ge=1, le=LARGEST_SIZE)]
Layout = Annotated[
    str,
    Field(
        description="FIELD=VALUE,... Degrees are counts of GPUs. What is left out: dp fills the "
        "cluster, zero_stage=1, all else 1 or off. Fields: tp pp vpp cp dp ep etp dp_replicate "
        "zero_stage sequence_parallel micro_batch_size schedule recompute recompute_modules "
        "recompute_method recompute_num_layers offload offload_modules stages.",
        examples=["tp=8,pp=4,vpp=2,micro_batch_size=1,sequence_parallel=true"],
    ),
]
Profiles = Annotated[
    list[str | Given],
    Inline(),
    Field(
        description="Measurements instead of the catalog's numbers: documents of `plan profile` or "
        "`plan calibrate`.",
    ),
]
PlanGiven = Annotated[
    str | Given,
    Inline(),
    Positional(),
    Field(
        description="A plan: the name that an answer of `search` was kept under, or the document.",
        examples=["plan-1"],
    ),
]
TimeLimit = Annotated[
    float | None,
    Apart(),
    Field(gt=0, description="Seconds, at most those of the server: the answer is the best by then"),
]
MemoryMargin = Annotated[
    float,
    Field(ge=0, lt=1, description="Share of the memory of every GPU that must stay free."),
]


class Request(BaseModel):
    """What every tool takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: Annotated[
        list[str] | None,
        Apart(),
        Field(
            description="Only these keys of the answer's document, to keep it short; a key of a "
            "mapping in it with a dot.",
            examples=[["best", "certificate"]],
        ),
    ] = None


class OfJob(Request):
    """What is trained, where and with what."""

    model: Annotated[
        str | Given,
        Inline(),
        Field(
            description="A preset of the catalog (tool `catalog`, kind `models`), the content of a "
            "Hugging Face config.json, or our own model document.",
            examples=["llama3-70b"],
        ),
    ]
    tower: str | None = Field(
        None,
        description="Of a model that sees or hears: samples=N in a sequence, patches=N in a "
        "sample, frozen=none|encoder|all; or `none` for its text alone.",
        examples=["samples=2,patches=1024"],
    )
    cluster: Annotated[
        str | Given,
        Inline(),
        Field(
            description="NODESxGPUS:GPU, groups of unlike nodes joined by +, or a cluster document "
            "(`plan schema cluster`) or profile. GPUs: tool `catalog`, kind `gpus`.",
            examples=["8x8:h100-sxm", "4x8:h100-sxm+4x8:h200-sxm"],
        ),
    ]
    global_batch_size: Size = Field(
        description="Sequences per optimizer step, over all replicas.", examples=[128]
    )
    lengths: str | None = Field(
        None,
        description="How long sequences are, where not all are seq_length: "
        "lognormal:MEAN,SIGMA, mean in tokens.",
        examples=["lognormal:4096,1.5"],
    )
    packing: str | None = Field(
        None,
        description="How sequences of `lengths` fill rows.",
        json_schema_extra=one_of(*PACKINGS, None),
    )
    precision: str = Field(
        "bf16",
        description="Number format of the matrix products.",
        json_schema_extra=one_of(*PRECISIONS),
    )
    optimizer: str = Field(
        "adamw",
        description="NAME[:SETTING=VALUE,...] (tool `catalog`, kind `optimizers`).",
        examples=["adamw", "galore:rank=1024"],
    )
    state_precision: str = Field(
        "o0",
        description="FP8-LM's level of stored states; all but o0 change the training.",
        json_schema_extra=one_of(*STATE_PRECISIONS),
    )
    tokens: str | None = Field(
        None,
        description="Tokens of the whole run: adds days, GPU-hours and money.",
        examples=["15T", "300B"],
    )
    train: str | None = Field(
        None,
        description="What is trained: full, lora:rank=16,modules=all, qlora:rank=16 or "
        "frozen:layers=0-20.",
        examples=["lora:rank=16,modules=all"],
    )
    loss_tokens: float = Field(
        1.0, gt=0, le=1, description="Share of the tokens that count in the loss."
    )
    runtime: str | None = Field(
        None,
        description=f"Training runtime the layout is for; null: {DEFAULT_RUNTIME}, or the first "
        "that has the optimizer.",
        json_schema_extra=one_of(*RUNTIMES, None),
    )
    runtime_version: str | None = Field(None, description="Version of it that runs.")
    option: list[str] = Field(
        [],
        description=f"Settings of the runtime, NAME=VALUE: {', '.join(RUNTIME_OPTIONS)}.",
        examples=[["attention=unfused", "overlap_grad_reduce=false"]],
    )
    reserve: str | None = Field(
        None,
        description="Memory of every GPU left to another tenant, with its unit.",
        examples=["30GiB"],
    )
    reserve_host: str | None = Field(
        None, description="Memory of the host of every node left to it.", examples=["200GiB"]
    )
    profile: Profiles = []


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
        "fewest that meet `deadline`) or context (the longest sequence).",
        json_schema_extra=one_of(*OBJECTIVES),
    )
    slack: str | None = Field(
        None,
        description="With objective memory: how much longer than the fastest a step may take.",
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
    search_options: str = Field(
        "safe",
        description="Settings of the runtime that are searched: safe, which change no numerics; "
        "all; or none.",
        json_schema_extra=one_of(*LEVELS),
    )
    memory_margin: MemoryMargin = 0.05
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


class CheckRequest(Request):
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
    ] = {}
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
        json_schema_extra=one_of(*RUNTIMES, None),
    )
    profile: Profiles = []
    memory_margin: MemoryMargin = 0.0
    time_limit: TimeLimit = None


class ExplainRequest(Request):
    """`plan explain`."""

    plan: PlanGiven
    profile: Profiles = []
    time_limit: TimeLimit = None


class WhyNotRequest(ExplainRequest):
    """`plan why-not`."""

    layout: Layout


class CompareRequest(Request):
    """`plan compare`."""

    first: PlanGiven
    second: PlanGiven
    profile: Profiles = []


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
