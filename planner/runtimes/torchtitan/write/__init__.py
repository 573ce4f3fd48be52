"""torchtitan: a config as a Python module, read by `python -m torchtitan.train`.

Source of every key and of the rules between them: pytorch/torchtitan, commit `COMMIT`,
`torchtitan/config/configs.py` and the files that the modules here name.
"""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.launch import (
    PLACEHOLDER_STEPS,
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    option,
    steps_of,
    summary,
)
from trainplan.planner.runtimes.exporter import Exporter
from trainplan.planner.runtimes.keys import Name
from trainplan.planner.runtimes.torch_schedule_csv import schedule_csv
from trainplan.planner.runtimes.torchtitan.keys import CHECKPOINT, MODEL
from trainplan.planner.runtimes.torchtitan.write import islands
from trainplan.planner.runtimes.torchtitan.write.code import Expression, in_line
from trainplan.planner.runtimes.torchtitan.write.facts import RECORDED
from trainplan.planner.runtimes.torchtitan.write.model import model_of
from trainplan.planner.runtimes.torchtitan.write.module import (
    ASSETS,
    FUNCTION,
    OUTPUT,
    Parts,
    module_text,
)
from trainplan.planner.runtimes.torchtitan.write.refused import REFUSES, refuse
from trainplan.planner.runtimes.torchtitan.write.schedule import by_table, priced_program
from trainplan.planner.runtimes.torchtitan.write.sections import (
    CSV,
    EVERY_KTH,
    Set,
    by_section,
    compiler,
    parallelism,
    recomputed,
    training,
)

COMMIT = "b5bcd76c66d0acb1a08b176d9639425bc55e0b2a"
"""torchtitan commit whose keys are written."""
CHECKED = (
    "23 plans were taken by this commit's own ConfigManager, ParallelDims and Trainer, up to "
    "the allocation of weights (torch 2.14, no GPU)"
)
MODULE = "trainplan_config"
REQUIRED = (
    RequiredVariable(
        ASSETS,
        "a folder with the tokenizer (scripts/download_hf_assets.py of torchtitan loads one)",
    ),
    RequiredVariable(OUTPUT, "the folder for checkpoints and logs"),
)


def export_torchtitan(job: Job, layout: Layout) -> LaunchConfig:
    """Config module of one layout, and the table of its schedule where torch has no class for it.

    Raises:
        UnsupportedError: The model or the layout has something no key expresses.
    """
    refuse(job, layout)
    job = islands.with_every(job, layout)
    stated = summary(job, layout)
    made = model_of(job, compiled=job.options.compile is not False)
    model = islands.in_fragments(made, job.outer)
    values = training(job, layout) | parallelism(job, layout) | compiler(job)
    values |= islands.joined(job)
    checkpoints = recomputed(job, layout)
    every = checkpoints is not None and checkpoints.function.startswith("Every")
    parts = Parts(
        head=(f"Written by `plan export` for torchtitan {COMMIT}.", f"checked: {CHECKED}", *stated),
        model=model,
        vocab_size=job.model.vocab_size,
        predicts=job.model.num_nextn_predict_layers > 0,
        loss_chunks=RUNTIMES["torchtitan"].tiling.loss_chunks if layout.tiled_loss else 1,
        sections=by_section(values),
        recomputed=checkpoints,
        helpers=(EVERY_KTH,) if every else (),
        steps=steps_of(job),
    )
    files = [ConfigFile(f"{MODULE}.py", module_text(parts))]
    if layout.pp > 1 and by_table(layout):
        files.append(ConfigFile(CSV, schedule_csv(priced_program(job, layout))))
    whole: dict[Name, Expression] = {MODEL: model.spec, CHECKPOINT: checkpoints}
    return LaunchConfig(
        runtime="torchtitan",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=stated,
        environment=tuple(islands.environment(job, layout)),
        required_environment=(*REQUIRED, *islands.required(job.outer)),
        entry_point=ModuleEntry("torchtitan.train"),
        arguments=(option("layout", "--module", MODULE), option("layout", "--config", FUNCTION)),
        notes=(*_notes(job, layout), *islands.notes(job.outer)),
        files=tuple(files),
        keys=tuple(_keys(whole, values)),
    )


def _keys(whole: Mapping[Name, Expression], values: Set) -> Iterator[tuple[str, str]]:
    for name, value in {**whole, **values}.items():
        yield str(name), value if isinstance(value, str) else in_line(value)


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    checkpoints = "" if job.cluster.failures else " and checkpoint intervals"
    yield (
        f"learning rate, warm-up{checkpoints} are common values, and the data is c4 from the Hub: "
        "change them freely"
    )
    if job.training.tokens is None:
        yield (
            "the job has no number of tokens: training.steps = "
            f"{PLACEHOLDER_STEPS} is a placeholder"
        )
    if not layout.tiled_loss:
        yield (
            "the loss is taken at once, as priced; tiled_loss=true takes it in chunks "
            "(ChunkedLossWrapper), as torchtitan's own configs do, and needs less memory"
        )
    if layout.recompute == "full":
        yield "recomputed layers run to their end; the plan ends them one product earlier"
    if layout.pp > 1 and by_table(layout):
        yield f"{layout.schedule} is listed op by op in {CSV}, which has to lie next to the module"
    if job.training.precision in {"fp8", "mxfp8", "nvfp4"}:
        yield f"{job.training.precision} needs torchao; weights are kept and gathered in 16 bits"


TORCHTITAN = Exporter(
    runtime="torchtitan",
    export=export_torchtitan,
    joins_islands=True,
    refuses=REFUSES,
    states=frozenset({"o0", "bf16"}),
    saves=frozenset({"sync", "async"}),
    writes=frozenset(
        {
            "tp",
            "cp",
            "pp",
            "dp",
            "ep",
            "etp",  # which it takes from tp and ep
            "vpp",
            "micro_batch_size",
            "sequence_parallel",
            "tiled_loss",
            "zero_stage",
            "schedule",
            "recompute",
            "recompute_modules",
            "recompute_method",
            "recompute_num_layers",
            "dp_replicate",
            "stages",
            "offload.optimizer",
            "offload.parameters",
        }
    ),
    source_patterns=(
        "torchtitan/config/configs.py",
        "torchtitan/config/manager.py",
        "torchtitan/trainer.py",
        "torchtitan/experiments/torchft/config/job_config.py",
        "torchtitan/experiments/torchft/manager.py",
        "torchtitan/experiments/torchft/trainer.py",
    ),
    recorded_flags=RECORDED,
)
