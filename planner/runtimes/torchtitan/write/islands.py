"""Islands that outer steps join: DiLoCo of torchft, in torchtitan's experiment.

Source: torchtitan/experiments/torchft manager.py, trainer.py, config/job_config.py and
diloco/utils.py; meta-pytorch/torchft 73dafea, torchft/local_sgd.py and manager.py.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.outer import sync_of, with_rounds
from trainplan.costmodel.step import simulated
from trainplan.planner.launch import EnvironmentVariable, RequiredVariable
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.write.code import Call, Code
from trainplan.planner.runtimes.torchtitan.write.model import Written
from trainplan.planner.runtimes.torchtitan.write.sections import Set

NUMBER, LIGHTHOUSE = "ISLAND", "TORCHFT_LIGHTHOUSE"
WAITS = 10
"""Times the seconds of a sync after which it is given up. Source: assumed."""
USUAL_S, HOUR_S = 60, 3600
"""Time-outs of torchft, and of its quorum where islands seldom meet. Source: torchft/manager.py."""
MIXES = 0.5
"""Share of the weights of an island, beside the joined ones, where local steps went on meanwhile:
0, which is torchft's own, takes those steps back. Source: Douillard et al., Streaming DiLoCo,
arXiv:2501.18512, section 2.2 (alpha)."""
IN_FRAGMENTS = '''\
def in_fragments(spec):
    """The model, joined one fragment of its layers after the other."""
    named = {one.name: getattr(spec, one.name) for one in dataclasses.fields(spec)}
    return FaultTolerantModelSpec(**named, fragment_fn=fragment_llm)
'''
EXPERIMENT = "from torchtitan.experiments.torchft"
INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "CheckpointManager": f"{EXPERIMENT}.checkpoint import TorchFTCheckpointManager",
        "Trainer": f"{EXPERIMENT}.trainer import FaultTolerantTrainer",
    }
)
"""What is imported in place of a class."""
IMPORTS = (
    f"{EXPERIMENT}.config import FaultTolerance",
    f"{EXPERIMENT}.optimizer import TorchFTOptimizersContainer",
    "from torchtitan.config import CommConfig",
)
OF_FRAGMENTS = (
    "import dataclasses",
    f"{EXPERIMENT}.config.job_config import FaultTolerantModelSpec",
    f"{EXPERIMENT}.diloco import fragment_llm",
)


@rule(
    "vpp",
    "torchtitan: outer steps join the first stage of a rank alone: set vpp to 1",
    "pytorch/torchtitan experiments/torchft/trainer.py, train: model_parts[0]",
)
def joins_one_stage(job: Job, table: LayoutTable) -> BoolColumn:
    """Several stages on a rank."""
    return np.asarray((table.vpp > 1) & (job.outer is not None))


@rule(
    "pp",
    "torchtitan: fragments of a model are of all its layers, which no stage of a pipeline has: set "
    "pp to 1, or leave --outer-fragments out",
    "pytorch/torchtitan experiments/torchft/diloco/utils.py, fragment_llm",
)
def joins_whole_models(job: Job, table: LayoutTable) -> BoolColumn:
    """Fragments under a pipeline."""
    return np.asarray((table.pp > 1) & (job.outer is not None and job.outer.fragments > 1))


@rule(
    "offload.parameters",
    "torchtitan: outer steps join weights on GPUs: leave offload.parameters out",
    "pytorch/torchft torchft/local_sgd.py, _save_grads; NCCL takes no tensors of a host",
)
def joins_weights_on_gpus(job: Job, table: LayoutTable) -> BoolColumn:
    """Weights that live on the host."""
    return np.asarray((table.offload_parameters > 0) & (job.outer is not None))


@rule(
    "dp dp_replicate zero_stage",
    "torchtitan: of outer steps every copy of the weights in an island would be sent: set "
    "zero_stage to 2 or 3 and dp_replicate to 1",
    "pytorch/torchft torchft/local_sgd.py, extract_local_tensor: each rank sends what it holds",
)
def joins_one_copy(job: Job, table: LayoutTable) -> BoolColumn:
    """Replicas that hold the same weights."""
    copies = (table.dp_replicate > 1) | ((table.zero_stage == 0) & (table.dp > 1))
    return np.asarray(copies & (job.outer is not None))


def unjoined(job: Job) -> Iterator[str]:
    """What of a job keeps torchft from joining its islands."""
    outer, model = job.outer, job.model
    if outer is None:
        return
    if outer.overlap == "eager":
        most = f", {outer.every // outer.fragments - 1} at most" if outer.every else ""
        yield f"torchft has no eager updates: hide a sync by --outer-overlap STEPS{most}"
    stored = "bf16" if job.training.state_precision == "bf16" else "fp32"
    if outer.dtype not in (stored, "fp8"):
        yield (
            f"torchft sends outer gradients as weights are stored ({stored}), or in fp8: use "
            f"--outer-dtype {stored} or fp8, not {outer.dtype}"
        )
    if job.options.cuda_graph == "full_iteration":
        yield "a graph of the whole step keeps gradients that an outer step replaces: drop it"
    if outer.fragments == 1:
        return
    if outer.fragments > model.num_hidden_layers + 2:
        yield (
            f"{model.num_hidden_layers} layers make no {outer.fragments} fragments: give "
            f"{model.num_hidden_layers + 2} or fewer"
        )
    if model.tie_word_embeddings or model.num_nextn_predict_layers:
        part = "a tied embedding" if model.tie_word_embeddings else "multi-token prediction"
        yield f"fragments are of layers, embedding and head, none of {part}: leave them out"


def with_every(job: Job, layout: Layout) -> Job:
    """The job with its local steps between syncs, where they are free."""
    if job.outer is None or job.outer.every is not None:
        return job
    alone = job.model_copy(update={"outer": None})
    return with_rounds(job, machine_for(job), _step_seconds(alone, layout))


def _step_seconds(job: Job, layout: Layout) -> float:
    """Of a local step, and its share of a sync where their number is known."""
    on = context_of(job, machine_for(job)).with_table(LayoutTable.of([layout]))
    return float(simulated(on, 0.0).step_time_s[0])


def joined(job: Job) -> Set:
    """Keys of `fault_tolerance`, and the time-outs that a slow link needs; none without islands."""
    outer = job.outer
    if outer is None:
        return {}
    values: Set = {
        key.JOINS: True,
        key.METHOD: "diloco",
        key.ISLANDS: outer.islands,
        key.LEAST: outer.islands,
        key.ISLAND: Code(f'int(os.environ["{NUMBER}"])'),
        key.EVERY: outer.every,
        key.QUANTIZES: outer.dtype == "fp8",
        key.FRAGMENTS: outer.fragments,
        key.JOINED_BY: "nccl",
        key.JOINED_WITHIN: 1000 * _given_up(job),
        key.TRAINED_WITHIN: max(key.TRAINED_WITHIN.default, _given_up(job)),
    }
    if isinstance(outer.overlap, int):
        values |= {key.DELAY: outer.overlap, key.MIXED: MIXES}
    return values


def _given_up(job: Job) -> int:
    """Seconds of a sync after which it has failed."""
    sync = sync_of(job, machine_for(job))
    assert sync is not None
    return max(USUAL_S, ceil(WAITS * sync.seconds))


def environment(job: Job, layout: Layout) -> Iterator[EnvironmentVariable]:
    """Time-outs that torchft reads from its environment."""
    outer = job.outer
    if outer is None or outer.every is None:
        return
    yield EnvironmentVariable(
        "TORCHFT_TIMEOUT_SEC", str(_given_up(job)), f"{WAITS} times a sync, 60 s or more"
    )
    yield EnvironmentVariable(
        "TORCHFT_QUORUM_TIMEOUT_SEC",
        str(max(HOUR_S, ceil(outer.every * _step_seconds(job, layout)))),
        "an island waits for the others of a round, an hour or more",
    )


def required(outer: OuterSpec | None) -> tuple[RequiredVariable, ...]:
    """What the launch of one island needs to know."""
    if outer is None:
        return ()
    return (
        RequiredVariable(
            NUMBER, f"which of the {outer.islands} islands this is, 0 to {(outer.islands or 2) - 1}"
        ),
        RequiredVariable(
            LIGHTHOUSE,
            "the address that all islands reach, http://HOST:29510, of one `torchft_lighthouse "
            f"--min_replicas {outer.islands}`",
        ),
    )


def notes(outer: OuterSpec | None) -> Iterator[str]:
    """How islands are started, and what is not the plan's."""
    if outer is None:
        return
    yield (
        f"one launch for each of the {outer.islands} islands, on its own nodes and with its own "
        f"{NUMBER}; `torchft_lighthouse` runs once, and the first island that is left saves"
    )
    yield "the outer optimizer is torchtitan's: SGD with rate 0.7 and Nesterov momentum 0.9"
    if outer.dtype == "fp8":
        yield "torchft quantizes outer gradients by kernels of Triton, on GPUs alone"


def in_fragments(model: Written, outer: OuterSpec | None) -> Written:
    """The model whose fragments are joined one after the other, where there are several."""
    if outer is None or outer.fragments == 1:
        return model
    spec = Call("in_fragments", {}, (model.spec,))
    return Written((*model.imports, *OF_FRAGMENTS), (*model.helpers, IN_FRAGMENTS), spec)
