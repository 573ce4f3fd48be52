"""What tools need of a job: what is trained, where and with what."""

from typing import Annotated, Literal

from pydantic import Field

from trainplan.cli.options import names
from trainplan.cli.serve.fields import (
    SELDOM,
    Given,
    Inline,
    Profiles,
    Request,
    Size,
    optional,
    seldom,
)


class OfNodes(Request):
    """What a cluster may leave out: network, power, how nodes fail, how the run is saved."""

    nic: str | None = seldom(
        "Network of a node, where it is not the cluster's usual one.", "400Gb/s", "4x100Gb/s"
    )
    power_limit: str | None = seldom(
        "Watts that the board of one GPU may draw, where they are fewer than usual.", "500W"
    )
    mtbf_node: str | None = seldom(
        "Mean time between failures of one node, or `published`, that of a published "
        "run on such GPUs: adds what failures and saves take to days, money and energy; null: the "
        "cluster's, else without failures.",
        "400d",
        "published",
    )
    restart: str | None = seldom("From a failure until training goes on.", "10m")
    checkpoint: str | None = seldom(
        "What all nodes together write to where checkpoints are.", "50GB/s"
    )
    save: str | None = seldom(
        "Training waits for a save, or until its copy is in host memory (async); "
        "local: it stays there, with another on another node.",
        enum=(*names.SAVES, None),
    )
    spare_nodes: int | None = seldom(
        "Nodes more than those of the cluster, which replace failed ones.", ge=0
    )
    repair: str | None = seldom(
        "Until a failed node is back; null: another is there at once.", "24h"
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
    tower: str | None = seldom(
        "Of a model with a vision or audio tower: samples=N in a sequence, patches=N in a "
        "sample, frozen=none|encoder|all; or `none` for its text alone.",
        "samples=2,patches=1024",
    )
    cluster: Annotated[
        str | Given,
        Inline(),
        Field(
            description="NODESxGPUS:GPU, groups of different nodes joined by +, machines with a "
            "name (tool `catalog`, kinds `gpus` and `clusters`), a cluster document (`plan schema "
            "cluster`) or a profile.",
            examples=["8x8:h100-sxm", "4x8:h100-sxm+4x8:h200-sxm", "2xp5.48xlarge"],
        ),
    ]
    price: str | None = optional(
        "Of one GPU for an hour: with `tokens`, adds money of the run.", "2.5", "EUR 2"
    )
    carbon: str | None = seldom(
        "Carbon dioxide of a kWh of electricity in kg, or the mean of the world.", "0.4", "world"
    )
    pue: float | None = seldom(
        "Energy of the site over that of its machines; null: that of the GPUs alone.",
        1.2,
        ge=1,
        le=10,
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
            json_schema_extra=SELDOM,
        ),
    ] = None
    packing: str | None = seldom(
        "How sequences of `lengths` fill rows.", enum=(*names.PACKINGS, None)
    )
    precision: str | None = optional(
        "Number format of the matrix products; null: bf16, on a CPU the faster of fp32 and bf16.",
        enum=(*names.PRECISIONS, None),
    )
    optimizer: str = optional(
        "NAME[:SETTING=VALUE,...] (tool `catalog`, kind `optimizers`).",
        "adamw",
        "galore:rank=1024",
        default="adamw",
    )
    state_precision: str = seldom(
        "What weights, gradients and moments are stored in: as the runtime does (o0), "
        "all in bf16, or at a level of FP8-LM (o1 to o3); all but o0 change the training.",
        default="o0",
        enum=names.STATE_PRECISIONS,
    )
    tokens: str | None = optional(
        "Tokens of the whole run: adds days, GPU-hours and money.", "15T", "300B"
    )
    train: str | None = optional(
        "What is trained: full, lora:rank=16,modules=all, qlora:rank=16 or frozen:layers=0-20.",
        "lora:rank=16,modules=all",
    )
    loss_tokens: float = seldom(
        "Share of the tokens that count in the loss.", default=1.0, ge=1e-6, le=1
    )
    runtime: str | None = optional(
        f"Training runtime the layout is for; null: {names.DEFAULT_RUNTIME}, or the "
        "first that trains the job; on a CPU fsdp2.",
        brief="Training runtime, such as megatron-lm, megatron-bridge, torchtitan or deepspeed.",
        enum=(*names.RUNTIMES, None),
    )
    runtime_version: str | None = seldom("Release of it that runs.")
    option: list[str] = optional(
        f"Settings of the runtime, NAME=VALUE: {', '.join(names.RUNTIME_OPTIONS)}.",
        ["attention=unfused", "overlap_grad_reduce=false"],
        default=[],
        brief="Settings of the runtime, NAME=VALUE (their names: tool `schema`).",
    )
    reserve: str | None = optional(
        "Memory of every GPU left to another tenant, with its unit.", "30GiB"
    )
    reserve_host: str | None = seldom("Memory of the host of every node left to it.", "200GiB")
    allow: list[Literal["diloco"]] = optional(
        "What may change the training. diloco: islands (equal groups of nodes, or "
        "`islands` of them) take local steps alone and are joined by outer steps.",
        default=[],
    )
    islands: int | None = seldom("With diloco: equal parts of the nodes.", ge=2)
    outer_every: int | str | None = seldom(
        "With diloco: local steps between outer steps; free: the fewest with 95 % of "
        "the time in local steps.",
        100,
        "free",
    )
    outer_dtype: str | None = seldom(
        "With diloco: outer gradients on the wire.",
        enum=(*names.OUTER_TYPES, None),
    )
    outer_overlap: int | str | None = seldom(
        "With diloco: local steps behind which an outer step may hide: none, a number, "
        "or eager, all until the next.",
        "eager",
    )
    outer_fragments: int | None = seldom(
        "With diloco: parts of the model that are joined in turn.", ge=1
    )
    profile: Profiles = ()
