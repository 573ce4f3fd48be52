"""What tools are asked of a job: what is trained, where and with what."""

from typing import Annotated, Literal

from pydantic import Field

from trainplan.cli.options import names
from trainplan.cli.serve.fields import Given, Inline, Profiles, Request, Size, one_of


class OfNodes(Request):
    """How nodes fail and how the run is saved."""

    mtbf_node: str | None = Field(
        None,
        description="Mean time between failures of one node, or `published`, that of a published "
        "run on such GPUs: adds what failures and saves take to days, money and energy; null: the "
        "cluster's, else without failures.",
        examples=["400d", "published"],
    )
    restart: str | None = Field(
        None, description="From a failure until training goes on.", examples=["10m"]
    )
    checkpoint: str | None = Field(
        None,
        description="What all nodes together write to where checkpoints are.",
        examples=["50GB/s"],
    )
    save: str | None = Field(
        None,
        description="Training waits for a save, or until its copy is in host memory (async); "
        "local: it stays there, with another on another node.",
        json_schema_extra=one_of(*names.SAVES, None),
    )
    spare_nodes: int | None = Field(
        None, ge=0, description="Nodes beside those of the cluster that take the place of failed."
    )
    repair: str | None = Field(
        None,
        description="Until a failed node is back; null: another is there at once.",
        examples=["24h"],
    )


class OfJob(OfNodes):
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
            description="NODESxGPUS:GPU, groups of unlike nodes joined by +, machines with a name "
            "(tool `catalog`, kinds `gpus` and `clusters`), a cluster document (`plan schema "
            "cluster`) or a profile.",
            examples=["8x8:h100-sxm", "4x8:h100-sxm+4x8:h200-sxm", "2xp5.48xlarge"],
        ),
    ]
    nic: str | None = Field(
        None,
        description="Network of a node, where it is not the cluster's usual one.",
        examples=["400Gb/s", "4x100Gb/s"],
    )
    power_limit: str | None = Field(
        None,
        description="Watts that the board of one GPU may draw, where they are fewer than usual.",
        examples=["500W"],
    )
    price: str | None = Field(
        None,
        description="Of one GPU for an hour: with `tokens`, adds money of the run.",
        examples=["2.5", "EUR 2"],
    )
    carbon: str | None = Field(
        None,
        description="Carbon dioxide of a kWh of electricity in kg, or the mean of the world.",
        examples=["0.4", "world"],
    )
    pue: float | None = Field(
        None,
        ge=1,
        le=10,
        description="Energy of the site over that of its machines; null: that of the GPUs alone.",
        examples=[1.2],
    )
    global_batch_size: Size = Field(
        description="Sequences per optimizer step, over all replicas.", examples=[128]
    )
    lengths: Annotated[
        str | Given | None,
        Inline(),
        Field(
            description="How long sequences are, where not all are seq_length: "
            "lognormal:MEAN,SIGMA, mean in tokens, or counts by length in tokens.",
            examples=["lognormal:4096,1.5", {"1024": 900, "8192": 100}],
        ),
    ] = None
    packing: str | None = Field(
        None,
        description="How sequences of `lengths` fill rows.",
        json_schema_extra=one_of(*names.PACKINGS, None),
    )
    precision: str | None = Field(
        None,
        description="Number format of the matrix products; null: bf16, on a CPU the faster of "
        "fp32 and bf16.",
        json_schema_extra=one_of(*names.PRECISIONS, None),
    )
    optimizer: str = Field(
        "adamw",
        description="NAME[:SETTING=VALUE,...] (tool `catalog`, kind `optimizers`).",
        examples=["adamw", "galore:rank=1024"],
    )
    state_precision: str = Field(
        "o0",
        description="What weights, gradients and moments are stored in: as the runtime does (o0), "
        "all in bf16, or at a level of FP8-LM (o1 to o3); all but o0 change the training.",
        json_schema_extra=one_of(*names.STATE_PRECISIONS),
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
        1.0, ge=1e-6, le=1, description="Share of the tokens that count in the loss."
    )
    runtime: str | None = Field(
        None,
        description=f"Training runtime the layout is for; null: {names.DEFAULT_RUNTIME}, or the "
        "first that trains the job; on a CPU fsdp2.",
        json_schema_extra=one_of(*names.RUNTIMES, None),
    )
    runtime_version: str | None = Field(None, description="Release of it that runs.")
    option: list[str] = Field(
        [],
        description=f"Settings of the runtime, NAME=VALUE: {', '.join(names.RUNTIME_OPTIONS)}.",
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
    allow: list[Literal["diloco"]] = Field(
        [],
        description="What may change the training. diloco: islands (equal groups of nodes, or "
        "`islands` of them) take local steps alone and are joined by outer steps.",
    )
    islands: int | None = Field(None, ge=2, description="With diloco: equal parts of the nodes.")
    outer_every: str | None = Field(
        None,
        description="With diloco: local steps between outer steps; free: the fewest with 95 % of "
        "the time in local steps.",
        examples=["100", "free"],
    )
    outer_dtype: str | None = Field(
        None,
        description="With diloco: outer gradients on the wire.",
        json_schema_extra=one_of(*names.OUTER_TYPES, None),
    )
    outer_overlap: str | None = Field(
        None,
        description="With diloco: local steps behind which an outer step may hide: none, a number, "
        "or eager, all until the next.",
        examples=["eager"],
    )
    outer_fragments: int | None = Field(
        None, ge=1, description="With diloco: parts of the model that are joined in turn."
    )
    profile: Profiles = ()
