"""Exported files of a plan's runtime, for a tiny job: started on few processes, beside one."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError, UnsupportedError
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.planner.launch import EntryPoint
from trainplan.planner.launchers import CPU_STARTS, LAUNCHERS, CpuStart, cpu_launch
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.verification.by_megatron import Combination, combination
from trainplan.planner.verification.compared import Compared, largest, tolerance
from trainplan.planner.verification.runs import Ran
from trainplan.planner.verification.shrink import LENGTH, tiny_job

AXES = ("tp", "pp", "cp", "ep", "dp")
"""Degrees that are started, each by itself."""
LAYERS = 4
LONG = 256
"""Tokens where sequences are cut. Source: torch.nn.attention.flex_attention, blocks of 128, of
which each of two ranks has two."""
OPTIONS = (RuntimeOptions(), RuntimeOptions(overlap_grad_reduce=False))
"""The second where ZeRO-0 takes no other."""
Steps = Sequence[tuple[float, float]]
"""Loss and gradient norm of each step."""


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """The files of one layout."""

    combination: Combination
    script: str
    """Name of the file that bash starts."""
    files: Mapping[str, str]
    """Texts by name."""
    environment: Mapping[str, str]
    """`.` stands for the folder of the files."""


@dataclass(frozen=True, slots=True)
class ExportedRuns:
    """What is started, and what is not."""

    reference: ExportedRun | None
    """One process; null: nothing is started."""
    others: tuple[ExportedRun, ...]
    not_started: tuple[str, ...]
    """What, and why; a line each."""


Start = Callable[[ExportedRun], tuple[Steps, float]]
"""Starts a script: losses, and seconds from start to end; raises `PlanError` where it fails."""


def exported_runs(
    job: Job, plan: Layout, steps: int, lacks: Callable[[Iterable[str]], str | None]
) -> ExportedRuns:
    """The files that the runtime of a job gets for what a plan uses.

    Args:
        job: Of the plan; a tiny one of its kind takes its place.
        plan: Its layout.
        steps: Optimizer steps that each trains.
        lacks: Says of some modules and variables which is not there; null: all are.
    """
    start = CPU_STARTS.get(job.runtime)
    if start is None:
        why = f"{job.runtime}: its files start on GPUs alone"
        return ExportedRuns(None, (), (why,))
    if missing := lacks(start.needs):
        return ExportedRuns(None, (), (f"{job.runtime}: {missing}",))
    made = _Made(job, plan, start, steps)
    try:
        reference = made.first(made.alone())
    except PlanError as error:
        why = str(error).removeprefix(f"{job.runtime}: ")
        return ExportedRuns(None, (), (f"{job.runtime}: {why}",))
    others, not_started = [], list(made.plainer())
    for axis in (one for one in AXES if getattr(plan, one) > 1):
        try:
            if reason := start.never.get(axis):
                raise UnsupportedError(reason)
            others.append(made.first(made.cut(axis)))
        except PlanError as error:
            not_started.append(f"{axis}: {error}")
    return ExportedRuns(reference, tuple(others), tuple(not_started))


def start_exported(runs: ExportedRuns, start: Start) -> Iterator[Ran]:
    """Start one process, then every layout; yields each of these when it has ended.

    One process alone is yielded where it fails: nothing can be compared with it.
    """
    if runs.reference is None or not runs.others:
        return
    try:
        alone, _ = start(runs.reference)
    except PlanError as error:
        yield Ran(runs.reference.combination, failure=str(error))
        return
    for one in runs.others:
        try:
            found, seconds = start(one)
        except PlanError as error:
            yield Ran(one.combination, failure=str(error))
            continue
        yield Ran(one.combination, seconds, _compared(one.combination.job, alone, found))


def _compared(job: Job, alone: Steps, found: Steps) -> Compared:
    losses, norms = ([step[at] for step in found] for at in (0, 1))
    return Compared(
        loss_difference=largest([loss for loss, _ in alone], losses),
        grad_norm_difference=largest([norm for _, norm in alone], norms),
        tolerance=tolerance(job, len(alone)),
        wrong_parameters=(),
        wrong_sent=(),
        wrong_saved=(),
        saved_difference=None,
    )


@dataclass(frozen=True, slots=True)
class _Made:
    """Writes files of tiny jobs."""

    job: Job
    plan: Layout
    start: CpuStart
    steps: int

    def alone(self) -> Iterator[Layout]:
        """One process, in the words that a runtime has for it."""
        for stage in dict.fromkeys((self.start.stage, 0, 1, 3)):
            yield Layout(zero_stage=stage, micro_batch_size=self.size)

    def cut(self, axis: str) -> Iterator[Layout]:
        """Two processes along an axis, with what of the plan goes with it."""
        plan = self.plan
        stages: tuple[int, ...] = (self.start.stage, self.sharded)
        stated: dict[str, object] = {axis: 2, "micro_batch_size": self.size}
        if axis == "tp":
            stated["sequence_parallel"] = plan.sequence_parallel
        if axis == "pp":
            stated |= {"schedule": plan.schedule, "vpp": min(plan.vpp, 2)}
        if axis in ("dp", "cp", "ep"):
            stages = (self.sharded, 2)  # torchtitan has 1 in pipelines alone
            stated |= self.recomputed
        if axis == "ep":
            stated["dp"] = 2
        for stage in dict.fromkeys(stages):
            yield Layout.model_validate({**stated, "zero_stage": stage})

    @property
    def sharded(self) -> int:
        """ZeRO stage of replicas: the plan's, or 1 where no CPU has it."""
        stage = self.plan.zero_stage
        return 1 if f"ZeRO-{stage}" in self.start.never else stage

    def plainer(self) -> Iterator[str]:
        """What of the plan runs in a plainer form."""
        name = f"ZeRO-{self.plan.zero_stage}"
        if name in self.start.never:
            yield f"{name}: {self.start.never[name]}"
        if self.plan.hpz > 1:
            yield "hpz: two processes are one group, which has no second copy; run without"
        for name in ("weight_bits", "gradient_bits"):
            if getattr(self.job.options, name):
                yield f"{name}: its kernels need GPUs; run without"

    @property
    def size(self) -> int:
        """Sequences of a micro batch."""
        return min(self.plan.micro_batch_size, 2)

    @property
    def recomputed(self) -> Mapping[str, object]:
        """Whole layers, where the plan runs them again."""
        if self.plan.recompute != "full":
            return {}
        method = self.plan.recompute_method
        return {"recompute": "full", "recompute_method": method, "recompute_num_layers": 1}

    def first(self, layouts: Iterable[Layout]) -> ExportedRun:
        """Of the first that the exporter writes.

        Raises:
            PlanError: It writes none: the reason of the first.
        """
        refusal: PlanError | None = None
        for layout in layouts:
            for options in OPTIONS:
                try:
                    return self.written(layout, options)
                except PlanError as error:
                    refusal = refusal or error
        assert refusal is not None, "layouts are given"
        raise refusal

    def written(self, layout: Layout, options: RuntimeOptions) -> ExportedRun:
        """The files of one layout.

        Raises:
            PlanError: The exporter refuses it.
        """
        tiny = tiny_job(self.job, LAYERS, self.size)
        length = LENGTH if self.plan.cp == 1 else LONG
        training = {"precision": self.start.precision, "seq_length": length}
        changes = {
            "runtime": self.job.runtime,
            "options": options,
            "training": tiny.training.model_copy(update=training),
            "model": tiny.model.model_copy(update={"max_position_embeddings": 2 * length}),
        }
        one = combination(tiny.model_copy(update=changes), layout)
        whole = EXPORTERS[one.job.runtime](one.job, layout)
        launch = cpu_launch(whole, self.steps)
        script = LAUNCHERS["torchrun"](launch, one.job.cluster)
        files = {script.name: script.text, **{file.name: file.text for file in launch.files}}
        if self.start.config:
            files["config.json"] = json.dumps(model_of(one.job.model))
        sizes = {"STEPS": str(self.steps), "VOCABULARY": str(one.job.model.vocab_size)}
        if isinstance(whole.entry_point, EntryPoint):
            sizes["PROGRAM"] = whole.entry_point.file
        return ExportedRun(one, script.name, files, {**sizes, **self.start.environment})


def model_of(model: ModelSpec) -> Mapping[str, object]:
    """What transformers builds in place of a model: Llama's decoder, with experts Mixtral's.

    Source: transformers `models/llama/configuration_llama.py`,
    `models/mixtral/configuration_mixtral.py`.
    """
    names = (
        *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads"),
        *("head_dim", "vocab_size", "max_position_embeddings", "tie_word_embeddings"),
    )
    sizes = {name: getattr(model, name) for name in names} | {
        "model_type": "llama",
        "intermediate_size": model.intermediate_size,
        "rms_norm_eps": model.norm_eps,
        "rope_theta": model.rope_theta,
    }
    if model.moe is None:
        return sizes
    return sizes | {
        "model_type": "mixtral",
        "intermediate_size": model.moe.moe_intermediate_size,
        "num_local_experts": model.moe.num_experts,
        "num_experts_per_tok": model.moe.num_experts_per_tok,
    }
