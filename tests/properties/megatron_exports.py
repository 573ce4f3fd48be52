"""Random jobs and layouts as the exports of a Megatron runtime, and what of them must come back."""

from random import Random

from tests import megatron_jobs as models
from tests.attack.layouts import Changes
from tests.grids import number
from trainplan import planner
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import OFFLOAD_MODULES, stage_specs
from trainplan.costmodel.layouts.table import layers_per_stage
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import EXPORTERS

OWN = {"dense": models.DENSE, "gpt3": models.GPT3, "mixtral": models.MIXTRAL}
PRESETS = (
    "llama3.1-70b",
    "deepseek-v3",
    "deepseek-v2-lite",
    "qwen3-30b-a3b",
    "gpt-oss-20b",
    "gpt2",
)
CHOICES = {
    "attention": (None, None, "unfused"),
    "dropout": (None, True),
    "cross_entropy": (None, "jit"),
    "cuda_graph": (None, None, "partial", "full_iteration"),
    "overlap_grad_reduce": (None, False),
    "overlap_param_gather": (None, True, False),
    "bucket_mb": (None, None, 25, 152.587890625),
    "overlap_tp_comm": (None, True),
    "overlap_moe_a2a": (None, True),
    "delay_wgrad": (None, True),
    "overlap_shared_experts": (None, True),
    "microbatch_group_size": (None, "least", "double", 6),
    "moe_dispatcher": (None, "deepep", "hybridep", "allgather", "ncclep"),
    "moe_dispatch_dtype": (None, "mxfp8"),
    "gradient_dtype": (None, "bf16"),
    "fp8_param_gather": (None, True, False),
    "moment_dtype": (None, "bf16"),
    "offload_activation_layers": (None, None, None, 2),
    "cp_comm_type": (None, "a2a", "all_gather"),
    "moe_capacity_factor": (None, 1.0, 1.25),
    "moe_pad_to_capacity": (None, True),
    "moe_token_drop_policy": (None, "position"),
    "moe_router_padding": (None, True),
}
CLUSTERS = {
    "4x8:h100-sxm": ("bf16", "fp8"),
    "2x8:b200": ("bf16", "mxfp8", "nvfp4"),
    "1x12:h100-sxm": ("bf16", "fp16"),
}
"""And number formats of their GPUs."""
LAYOUTS = number(5, by_night=24)
"""Of each model."""
NEAR = number(6, by_night=12)
"""Layouts near each that is drawn."""


def random_job(model, random):
    """On one of three clusters, in one of the formats that are written, with some options set."""
    chosen = {name: random.choice(values) for name, values in CHOICES.items()}
    options = stated_options({n: v for n, v in chosen.items() if random.random() < 0.3})
    name, formats = random.choice(tuple(CLUSTERS.items()))
    precision = random.choice(formats)
    training = TrainingSpec(seq_length=1024, global_batch_size=96, precision=precision)
    return Job(model=model, training=training, cluster=parse_cluster(name), options=options)


def stated_options(values):
    """Options of these; without a capacity nothing is padded to it or dropped by a policy."""
    without = values.get("moe_capacity_factor") is None
    idle = ("moe_pad_to_capacity", "moe_token_drop_policy") if without else ()
    return RuntimeOptions(**{name: v for name, v in values.items() if name not in idle})


def exports(name, jobs, number=LAYOUTS):
    """Jobs that `jobs` makes of a model, layouts of them, and launches: `number` or more."""
    random, model = Random(name), OWN.get(name) or preset(name)
    made = 0
    while made < number:
        job = jobs(model, random)
        for layout in layouts(job, random):
            try:
                config = EXPORTERS[job.runtime](job, layout)
            except PlanError:  # what no option says is refused by name
                continue
            made += 1
            yield job, layout, config


def layouts(job, random):
    """Some legal layouts, with what the search does not try by itself."""
    changes = Changes(job, random)
    found = [layout for layout in [changes.any(120)] if layout]
    found += changes.of(found[0], NEAR) if found else []
    more = [
        layout.model_copy(update=random.choice(ways))
        for layout in found
        for some in [tuple(n for n in OFFLOAD_MODULES if random.random() < 0.5)]
        for ways in [({"dp_replicate": 2}, {"offload_modules": some}, {"gtp": 2}, {"egtp": 2})]
        if layout.dp % 2 == 0
    ]
    return found + changes.legal(more)


def plain(layout, job):
    """Stages that spell out the even split are no stages of their own."""
    even = stage_specs(layers_per_stage(job.model.num_hidden_layers, layout.pp * layout.vpp))
    return layout.model_copy(update={"stages": None}) if layout.stages == even else layout


def check_same(reading, job, layout):
    """What was read is what was exported, and has its price."""
    assert reading.legal, reading.problems
    assert reading.layout == plain(layout, job)
    assert reading.job.model == job.model
    tokens = {"tokens": reading.job.training.tokens}
    assert reading.job.training == job.training.model_copy(update=tokens)
    assert price(reading.job, layout) == price(job, layout), (job.options, reading.job.options)


def price(job, layout):
    """Step time and memory: what the options of a job do in a layout."""
    priced = planner.estimates(job, [layout])
    return priced.step_time_s[0], priced.peak_reserved_bytes[0]
