"""What trainers over transformers have no word for, named with the trainers that have one."""

from collections.abc import Callable, Iterator, Mapping

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.hf_trainers.tables import WRITTEN, Table, Writes
from trainplan.planner.runtimes.training_script.write import WRITES

COMMON = WRITES - {"tp"}
"""Choices of a layout that each has words for."""
OTHERS = {name: table.writes for name, table in WRITTEN.items() if table.writes}


def is_narrow(job: Job) -> bool:
    """Are states in bf16 by an argument, and not by the section of DeepSpeed?"""
    return job.training.state_precision == "bf16" and job.runtime == mesh.RUNTIME


def lacking(job: Job, layout: Layout, table: Table, writes: Writes) -> Iterator[str]:
    """What the trainer has no word for, and who has."""
    for axis in AXES:
        if not axis.is_off(layout) and axis.name not in COMMON | _axes(job, writes):
            others = [name for name, one in OTHERS.items() if axis.name in _axes(job, one)]
            yield (
                f"has no word for {axis.name} = {axis.text(layout)} on {job.runtime}: set it to "
                f"{axis.codec.text(axis.off)}, {_instead(others)}"
            )
    for what, has in _parts(job):
        if not has(writes):
            others = [name for name, one in OTHERS.items() if has(one)]
            yield f"has no word for {what}: {_instead(others)}"
    if table.ulysses and job.model.num_key_value_heads % layout.cp:
        yield (
            f"shares {job.model.num_key_value_heads} heads of keys over cp = {layout.cp} ranks by "
            "a ring, which is not priced: use a cp that divides them, or leave --trainer out"
        )
    if job.training.loss_tokens < 1:
        yield "computes the logits of all tokens: use loss_tokens=1, or leave --trainer out"
    for name, value in always(job).items():
        if getattr(job.options, name) != value:
            yield f"keeps adapters in {value}: search with --option {name}={value}"


def always(job: Job) -> Mapping[str, object]:
    """Options of the runtime that each trainer has whatever a plan says."""
    adapts = job.model.trained is not None and job.model.trained.adapts
    return {"adapter_dtype": "fp32"} if adapts and job.runtime == mesh.RUNTIME else {}


def _axes(job: Job, writes: Writes) -> frozenset[str]:
    return writes.axes.get(job.runtime, frozenset())


def _parts(job: Job) -> Iterator[tuple[str, Callable[[Writes], object]]]:
    """What of a job needs a word beside those of its layout, and where a trainer has it."""
    some, tower = job.model.trained, job.model.tower
    if some:
        yield (
            f"--train {some.text}",
            lambda one: (one.quantised if some.quantised else one.adapters) if some.adapts else (),
        )
    if job.training.packing != "none":
        yield f"rows packed {job.training.packing}", lambda one: one.packed
    if is_narrow(job):
        yield "states in bf16", lambda one: one.narrow
    if tower and tower.frozen != "none":
        yield (
            f"a tower of which {tower.frozen} is frozen",
            lambda one: one.towers.get(tower.frozen),
        )


def _instead(others: list[str]) -> str:
    """Where to go."""
    where = f"export with --trainer {' or '.join(others)}, or " if others else ""
    return f"{where}leave --trainer out"
