"""Options that several commands share."""

from pathlib import Path

import click

from trainplan.cli.options import completions
from trainplan.cli.options.help import Decorator, gathered
from trainplan.cli.options.names import (
    ALLOWED,
    DEFAULT_RUNTIME,
    FIT_CHANCE,
    LARGEST_SIZE,
    OPTIMIZERS,
    OUTER_TYPES,
    PACKINGS,
    RUNTIME_OPTIONS,
    RUNTIMES,
    STATE_PRECISIONS,
)
from trainplan.cli.options.parameters import (
    FloatRange,
    IntRange,
    OneOf,
    Whole,
    byte_count,
    carbon_intensity,
    job_option,
    limit_seconds,
    listing,
    step_count,
    token_count,
)
from trainplan.cli.options.where import (
    FAILURES,
    NIC,
    OFFERS,
    POWER_LIMIT,
    WHERE,
    needs_a_machine,
    needs_machine_and_length,
)
from trainplan.cli.terminal import named

PATH = click.Path(path_type=Path)
PLAN = click.argument("plan", type=PATH)

MODEL = job_option(
    "--model",
    "Preset (`plan catalog models`), name on Hugging Face, config.json, its folder, or our YAML.",
    required=True,
)
TOWER = click.option(
    "--tower",
    shell_complete=completions.pairs(("none", *completions.TOWER_FIELDS), joined=True),
    metavar="NAME=VALUE,...",
    help="Of a vision or audio tower: samples=N in a sequence, patches=N in a sample, "
    "frozen=none|encoder|all; or `none`: text alone.",
)


def global_batch_size(
    *, required: bool, text: str = "Sequences per optimizer step, over all replicas"
) -> Decorator:
    """`--global-batch-size`."""
    shown = f"{text} (512, 2k is 2,000)."
    kind = Whole(LARGEST_SIZE)
    return click.option("--global-batch-size", required=required, type=kind, help=shown)


def seq_length(*, required: bool, text: str = "Tokens per sequence") -> Decorator:
    """`--seq-length`."""
    shown = f"{text} (8192, 8k, 1M; k is 1,024)."
    kind = Whole(LARGEST_SIZE, "length")
    return click.option("--seq-length", required=required, type=kind, help=shown)


PRECISION = job_option(
    "--precision",
    "Number format of the matrix products.  [default: bf16; on a CPU the faster of fp32 and bf16]",
)
LENGTHS = click.option(
    "--lengths",
    shell_complete=completions.names(("lognormal:",), files=True),
    metavar="FILE|lognormal:MEAN,SIGMA",
    help="Lengths of sequences where they differ: a CSV of length,count, its JSON, or a "
    "distribution; --seq-length is then a row.",
)
PACKING = click.option(
    "--packing",
    type=OneOf("packing", PACKINGS),
    help="How they fill rows: each padded to one, first fit, or equal in attention work.  "
    "[default: none]",
)
TOKENS = click.option(
    "--tokens",
    callback=token_count,
    metavar="N",
    help="Tokens of the whole run (15T, 300B, 1e12): adds days, GPU-hours, energy and money.",
)
OPTIMIZER = click.option(
    "--optimizer",
    shell_complete=completions.names(OPTIMIZERS),
    metavar="NAME[:SETTING=VALUE,...]",
    default="adamw",
    cls=listing(OPTIMIZERS),
    help="Optimizer (names below), such as galore:rank=1024; galore and apollo change the "
    "training.",
)
STATE_PRECISION = click.option(
    "--state-precision",
    type=OneOf("state precision", STATE_PRECISIONS),
    default=STATE_PRECISIONS[0],
    help="Changes the training. bf16: weights, gradients and moments, no copy in fp32. FP8-LM: o1 "
    "gradients in fp8, o2 also moments in fp8 and fp16, o3 also weights in fp8.",
)
RUNTIME = job_option(
    "--runtime",
    f"Training runtime (names below).  [default: {DEFAULT_RUNTIME}, or the first that trains the "
    "job; on a CPU fsdp2]",
    listed=RUNTIMES,
)
RUNTIME_VERSION = click.option(
    "--runtime-version",
    metavar="VERSION",
    help="Release you run: a container (26.04), Megatron Core (0.17) or a month (2026-05). Layers "
    "of experts are priced for it.  [default: the newest known]",
)


def runtime_options(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> object:
    """Callback of `--option`: the settings; nothing while a shell requests completions."""
    if context.resilient_parsing:
        return None
    return named("trainplan.cli.values.stated:parse_options")(texts=texts)


RUNTIME_OPTION = click.option(
    "--option",
    "runtime_options",
    shell_complete=completions.pairs(RUNTIME_OPTIONS),
    multiple=True,
    metavar="NAME=VALUE",
    callback=runtime_options,
    cls=listing(RUNTIME_OPTIONS),
    help="Setting of the runtime (names below), again for more.",
)
RESERVE = click.option(
    "--reserve",
    "reserve_bytes",
    callback=byte_count,
    metavar="SIZE",
    help="Memory of each GPU left to another tenant, as a rollout engine (30GiB, 500MiB).",
)
RESERVE_HOST = click.option(
    "--reserve-host",
    "reserve_host_bytes",
    callback=byte_count,
    metavar="SIZE",
    help="Host memory of each node left to it (200GiB).",
)
TRAIN = click.option(
    "--train",
    shell_complete=completions.names(completions.TRAINED),
    metavar="WHAT",
    help="full, lora:rank=16,modules=all, qlora:rank=16 or frozen:layers=0-20; modules: all, "
    "attention, mixer, mlp or matrices as q,v.  [default: as the model states, full]",
)
LOSS_TOKENS = click.option(
    "--loss-tokens",
    type=FloatRange(1e-6, 1),
    default=1.0,
    metavar="SHARE",
    help="Share of the tokens that count in the loss: prompts may not.",
)
OUTER = (
    click.option(
        "--allow",
        type=OneOf("change of the training", ALLOWED),
        multiple=True,
        help="What may change the training. diloco: islands of nodes take local steps alone and "
        "are joined by outer steps.",
    ),
    click.option(
        "--islands",
        type=IntRange(2, 1 << 10),
        metavar="N",
        help="diloco: equal parts of the nodes.  [default: the cluster's groups; a search tries "
        "fewer, and none]",
    ),
    click.option(
        "--outer-every",
        callback=step_count("free"),
        shell_complete=completions.names(("free",)),
        metavar="STEPS|free",
        help="diloco: local steps between outer steps; free: the fewest with 95 % of the time in "
        "local steps.  [default: free]",
    ),
    click.option(
        "--outer-dtype",
        type=OneOf("type", OUTER_TYPES),
        help="diloco: outer gradients on the wire.  [default: fp32]",
    ),
    click.option(
        "--outer-overlap",
        callback=step_count("none", "eager"),
        shell_complete=completions.names(("none", "eager")),
        metavar="none|STEPS|eager",
        help="diloco: local steps that an outer step overlaps; eager: all until the next.  "
        "[default: none]",
    ),
    click.option(
        "--outer-fragments",
        type=IntRange(1, 1 << 10),
        metavar="N",
        help="diloco: parts of the model that are joined in turn.  [default: 1]",
    ),
)
CARBON = click.option(
    "--carbon",
    "kg_co2_per_kwh",
    callback=carbon_intensity,
    shell_complete=completions.names(("world",)),
    metavar="KG|world",
    help="kg of CO2 of a kWh, such as 0.4, or the mean of the world: adds that of a step and of "
    "the run of --tokens.",
)
PUE = click.option(
    "--pue",
    type=FloatRange(1, 10),
    metavar="X",
    help="Energy of the site over that of its machines, such as 1.2.  [default: GPUs alone]",
)
PROFILE = click.option(
    "--profile",
    "profiles",
    multiple=True,
    type=PATH,
    help="Measurements instead of the catalog: of `plan profile` (several merge) or `plan "
    "calibrate`.",
)
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document and nothing else."
)
REPORT = click.option(
    "--report", type=PATH, metavar="FILE", help="Also write a page with charts, a new HTML file."
)
CANDIDATE = click.option(
    "--candidate",
    type=Whole(1 << 30),
    metavar="N",
    help="Rank of another layout of the plan's table.  [default: the best]",
)
FORCE = click.option("--force", is_flag=True, help="Replace files that exist.")
WORKERS = click.option(
    "--workers",
    type=IntRange(1, 64),
    help="Processes that share the work.  [default: one for each core, at most 8]",
)


report_options = gathered("report", "trainplan.cli.values.stated:ReportFile", (REPORT, FORCE))
"""`--report --force`, as `report`."""


node_options = gathered(
    "with_stated", "trainplan.cli.values.machine:stated_of", (NIC, POWER_LIMIT, *FAILURES)
)
"""`--nic`, `--power-limit`, `--mtbf-node` to `--repair`, as what makes of a cluster the same with
them: `with_stated`."""


def memory_margin(default: float | None) -> Decorator:
    """`--memory-margin` with its default; null: what fits with `FIT_CHANCE`."""
    return click.option(
        "--memory-margin",
        type=FloatRange(0, 1, max_open=True),
        default=default,
        help="Share of GPU memory that must stay free."
        + ("" if default is not None else f"  [default: what fits {100 * FIT_CHANCE:g} of 100]"),
    )


def time_limit(default: float, what: str) -> Decorator:
    """`--time-limit` with its default."""
    return click.option(
        "--time-limit",
        callback=limit_seconds,
        metavar="SECONDS",
        default=f"{default:g}",
        help=f"{what} `none`: no limit.",
    )


def job_options(*, length_required: bool) -> Decorator:
    """`--model` to `--profile`, as `question`; a search may find the length and compare offers."""
    options = (
        MODEL,
        TOWER,
        *WHERE,
        *(() if length_required else (OFFERS,)),
        global_batch_size(required=True),
        seq_length(required=length_required),
        LENGTHS,
        PACKING,
        PRECISION,
        OPTIMIZER,
        STATE_PRECISION,
        TOKENS,
        TRAIN,
        LOSS_TOKENS,
        RUNTIME,
        RUNTIME_VERSION,
        RUNTIME_OPTION,
        RESERVE,
        RESERVE_HOST,
        *OUTER,
        CARBON,
        PUE,
        PROFILE,
    )
    needs = needs_a_machine if length_required else needs_machine_and_length
    return gathered("question", "trainplan.cli.values.offers:question_of", options, needs)


def output_options(unit: str = "") -> Decorator:
    """`--csv --trace --force --width --json`, as `outputs`; `unit` ends the help of `--trace`."""
    return gathered(
        "outputs",
        "trainplan.cli.values.schedule:Outputs",
        (
            click.option(
                "--csv", type=PATH, help="Write the schedule as torch's pipeline runtime loads it."
            ),
            click.option("--trace", type=PATH, help=f"Write a trace for ui.perfetto.dev{unit}."),
            FORCE,
            click.option(
                "--width",
                type=IntRange(40, 1000),
                help="Columns of the timeline.  [default: those of the terminal]",
            ),
            JSON,
        ),
    )
