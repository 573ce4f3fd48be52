"""arctic-training: Snowflake's trainer, whose YAML holds the section of DeepSpeed's engine.

Source: snowflakedb/ArcticTraining, `arctic_training/config` (trainer.py refuses keys it does not
know), `data/hf_causal_source.py`, `optimizer/adam_factory.py`, `model/liger_factory.py` and
`trainer/sft_trainer.py`. That its tiled loss leaves a gradient undivided was seen on DeepSpeed
0.19.8, TiledFusedLogitsLoss.backward, called as there: 32 times as large with 32 tokens.
"""

from collections.abc import Iterator

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.launch import RequiredVariable, steps_of
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.trainer import Trainer
from trainplan.planner.runtimes.keys import Entry, Keys, Option, Written
from trainplan.planner.runtimes.training_script.write import accumulated, model_called

TRAITS = RUNTIMES["arctic-training"]
TILES = next(rule for rule in TRAITS.rules if rule.name == "trainer_tiles_the_loss")
VARIABLES = {
    "name_or_path": RequiredVariable(
        "MODEL", "the model, as transformers takes it: a name or a folder"
    ),
    "data_files": RequiredVariable(
        "DATA_FILES", "files of JSON lines with the column text; a pattern may name several"
    ),
}
MICRO, STEPS = Option("micro_batch_size", 1), Option("gradient_accumulation_steps", 1)
SP, KIND = Option("sequence_parallel_size", 1), Option("type", "sft")
CHECKPOINTS = Option("activation_checkpoint_cpu_offload", default=False)
TILED_MLP = Option("tiled_mlp_compute", default=False)
MODEL, DTYPE = Option("model.type", "huggingface"), Option("model.dtype", "bf16")
NAME = Option("model.name_or_path", "")
KEEPS = Option("model.disable_activation_checkpoint", default=False)
LENGTH = Option("data.max_length", -1)
ADAM: dict[str, object] = {"learning_rate": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
EXPERTS = "experts on ranks of their own are not priced: the price is without"


def _written(job: Job, layout: Layout) -> Written:
    model, files = (one.name for one in VARIABLES.values())
    source = {"name_or_path": "json", "kwargs": {"data_files": files}}
    return {
        KIND: "causal",
        MICRO: layout.micro_batch_size,
        STEPS: accumulated(job, layout),
        SP: layout.cp,
        CHECKPOINTS: True if layout.offload.checkpoints else None,
        TILED_MLP: layout.tiled_mlp or None,
        "train_iters": steps_of(job),
        MODEL: "liger" if job.options.liger else MODEL.default,
        NAME: model_called(job) or model,
        DTYPE: job.training.precision,
        "model.attn_implementation": "flash_attention_2",
        KEEPS: layout.recompute != "full",
        "data.sources": [{"type": "huggingface_causal", **source}],
        LENGTH: job.training.seq_length,
        "optimizer": {"type": "cpu_adam" if layout.offload.optimizer else "fused_adam", **ADAM},
    }


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    if layout.tiled_loss and not job.options.liger:
        yield (
            "the trainer tiles the loss by TiledFusedLogitsLoss, which leaves the gradient of the "
            "output projection undivided by the tokens: --option liger=0.6 does not"
        )


def _finished(keys: Keys, job: Job, layout: Layout) -> tuple[Job, Layout]:
    """With sequence ranks the loss is tiled whatever is stated, if there are several tiles."""
    notes = keys.notes
    if keys.raw(MODEL) == "liger":
        job = job.model_copy(update={"options": job.options.model_copy(update={"liger": "0.6"})})
        notes.note("options.liger", Entry("0.6", "derived", f"{MODEL}: liger"))
    loss = bool(TILES.broken(job, LayoutTable.of([layout]))[0])
    mlp = keys.raw(TILED_MLP) is True
    notes.fields = [one for one in notes.fields if not one.name.startswith("layout.tiled_")]
    notes.note("layout.tiled_loss", Entry(loss, "derived", f"{MODEL}, {SP}"))
    notes.note("layout.tiled_mlp", Entry(mlp, "stated" if mlp else "default", str(TILED_MLP)))
    return job, layout.model_copy(update={"tiled_loss": loss, "tiled_mlp": mlp})


TRAINER = Trainer(
    traits=TRAITS,
    title="ArcticTraining",
    version="b28638e6c577ece34cc147ab3d45d27a7f66b33b",  # 0.8.1.dev0
    checked="20 plans were taken by this commit's own classes of configuration (no GPU)",
    programs=("arctic_training_run", "arctic_training"),
    over={engine.MICRO: MICRO, engine.STEPS: STEPS, engine.SP: SP},
    variables=VARIABLES,
    options={"liger": ("0.6",)},
    kind=KIND,
    kinds=("sft", "causal"),
    named=NAME,
    dtype=DTYPE,
    stage=2,
    length=LENGTH,
    keeps=KEEPS,
    checkpoints=CHECKPOINTS,
    unpriced={
        Option("expert_parallel_size", 1): EXPERTS,
        Option("arctic_moe", 1): EXPERTS,
        Option("model.peft_config", ""): "adapters are not priced: the price trains every weight",
    },
    rows="the trainer packs documents into rows and starts their positions anew: attention then "
    "costs what --lengths prices, and less than of whole rows",
    steps="train_iters",
    writes=_written,
    notes=_notes,
    finished=_finished,
    patterns=(
        *("arctic_training/config/trainer.py", "arctic_training/config/*.py"),
        *("arctic_training/entrypoint.py", "arctic_training/data/hf*_source.py"),
        "arctic_training/data/causal_factory.py",
    ),
    packs="the trainer packs by itself, with position_ids that start anew with each document",
    lacks=frozenset({"tp", "dp_replicate"}),
)
EXPORTER, READER = TRAINER.as_exporter(), TRAINER.as_reader()
