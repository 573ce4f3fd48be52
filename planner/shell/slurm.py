"""What a scheduler is asked for: `#SBATCH` lines, options of srun, and what others have for them.

Source: https://slurm.schedmd.com/sbatch.html and https://slurm.schedmd.com/srun.html (24.05);
openpbs/openpbs doc/man1/qsub.1B and doc/man7/pbs_resources.7B (select); flux-framework/flux-core
doc/man1/common/job-param-common.rst; IBM Spectrum LSF 10.1 `bsub -gpu`, `-nnodes`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

from trainplan.planner.shell.launch import Place, Problem, Verdict, Word, number
from trainplan.planner.shell.options import TABLE
from trainplan.planner.shell.variables import Piece, Value


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes, tasks and GPUs, as far as they are stated, and what these are called."""

    nodes: Word | None = None
    tasks: Word | None = None
    tasks_per_node: Word | None = None
    gpus_per_node: Word | None = None
    gpus: Word | None = None
    """Of the whole job."""
    array: Word | None = None
    gpu: Word | None = None
    features: Word | None = None

    def over(self, outer: Allocation) -> Allocation:
        """These counts where they are stated, otherwise those of the job that they stand in."""
        stated = {f.name: getattr(self, f.name) or getattr(outer, f.name) for f in fields(self)}
        if self.tasks and not self.tasks_per_node:
            stated["tasks_per_node"] = None
        if self.tasks_per_node and not self.tasks:
            stated["tasks"] = None
        return Allocation(**stated)

    @property
    def per_node(self) -> Word | None:
        """Tasks of a node; of a count that is no multiple of the nodes, none."""
        if self.tasks_per_node or not self.tasks:
            return self.tasks_per_node
        total, nodes = number(self.tasks), number(self.nodes)
        if not total or not nodes or total % nodes:
            return None
        return replace(self.tasks, text=str(total // nodes))

    @property
    def on_node(self) -> Word | None:
        """GPUs of a node; of a count that is no multiple of the nodes, none."""
        total, nodes = number(self.gpus), number(self.nodes) if self.nodes else 1
        if self.gpus_per_node or not total or not nodes or total % nodes:
            return self.gpus_per_node
        assert self.gpus is not None
        return replace(self.gpus, text=str(total // nodes))

    def variables(self) -> dict[str, Value]:
        """What sbatch sets for the script."""
        named = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.tasks,
            "SLURM_NPROCS": self.tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks_per_node,
            "SLURM_TASKS_PER_NODE": self.per_node,
            "SLURM_GPUS_PER_NODE": self.gpus_per_node,
            "SLURM_GPUS_ON_NODE": self.on_node,
            "SLURM_GPUS": self.gpus,
        }
        return {
            name: (Piece(word.text, word.place),)
            for name, word in named.items()
            if word and number(word) is not None
        }


_NAMES = {name: what for what, names in TABLE["slurm"].items() for name in names.split()}
_OPTION = re.compile(
    r"--(?P<long>[\w-]+)(?:=(?P<value>.*))?|-(?P<short>[NnagGC])(?P<joined>.*)", re.DOTALL
)
_GPUS = re.compile(r"(?:(?P<kind>\w[\w.+-]*):)?(?P<count>\d+)(?![\w.:-])|(?P<only>\w.*)")
_GPU_RESOURCE = re.compile(r"(?:^|[,/:])gpu[:=](?P<gpu>[^,]*)|(?P<bare>(?:^|,)gpu(?:$|,))")


def allocation_of(words: Sequence[Word]) -> Allocation:
    """Counts among the options of sbatch, srun or flux."""
    found: dict[str, Word] = {}
    word: Word
    after: Word | None
    for word, after in zip_longest(words, words[1:]):
        match = _OPTION.fullmatch(word.text)
        name = _NAMES.get(match["long"] or match["short"]) if match else None
        if not match or not name:
            continue
        written = match["value"] if match["long"] else match["joined"] or None
        value = replace(word, text=written) if written is not None else after
        if value and name.startswith("gpus"):
            value, kind = _gpus(value, of_resources=match["long"] == "gres")
            if kind:
                found["gpu"] = kind
        if value:
            found[name] = value
    per_task = found.pop("gpus_per_task", None)
    allocation = Allocation(**found)
    if allocation.gpus_per_node:
        return allocation
    tasks = number(allocation.per_node) or (1 if allocation.tasks is None else None)
    if per_task and tasks and (each := number(per_task)):
        return replace(allocation, gpus_per_node=replace(per_task, text=str(tasks * each)))
    return allocation


def _gpus(value: Word, *, of_resources: bool) -> tuple[Word | None, Word | None]:
    """Count and kind of `gpu:a100:8`, `h200:8`, `8`."""
    text = value.text
    if of_resources:
        resource = _GPU_RESOURCE.search(text)
        if resource is None:
            return None, None
        text = resource["gpu"] or "1"
    gpus = None if value.unresolved else _GPUS.match(text)
    if gpus is None:
        return None, None
    kind = gpus["kind"] or gpus["only"]
    count = gpus["count"] or "1"
    return replace(value, text=count), replace(value, text=kind) if kind else None


def patterned(kind: str, words: Sequence[Word]) -> Allocation:
    """Counts among words of PBS, LSF or jsrun: `select=4:ngpus=8`, `-nnodes 4`, `-n16 -r 4`."""
    text = "".join(f" {word.text}" for word in words)
    found = {
        name: re.search(f"(?<=[ :,]){one}", text) for name, one in TABLE["schedulers"][kind].items()
    }
    return Allocation(**{name: replace(words[0], text=m[1]) for name, m in found.items() if m})


_MARKS = ("#SBATCH", "#PBS", "#BSUB", "#flux:")


def directives(text: str, file: str | None) -> tuple[Allocation, bool, tuple[Problem, ...]]:
    """`#SBATCH` and the like; are there any; those that are ignored, behind the first command."""
    words: list[Word] = []
    problems: list[Problem] = []
    begun = False
    mark = next((mark for mark in _MARKS if mark in text), "#SBATCH")
    for at, line in enumerate(text.split("\n") if mark in text else (), start=1):
        place = Place(file, at)
        if line.startswith(mark):
            if begun:
                says = f"an {mark} line behind the first command is ignored: move it to the top"
                problems.append(Problem("sbatch_ignored", "ignored", says, place))
            else:
                words += [Word(word, place) for word in _words(line.removeprefix(mark))]
        elif line.strip() and not line.lstrip().startswith("#"):
            begun = True
    allocation = patterned(mark, words) if mark in TABLE["schedulers"] else allocation_of(words)
    if allocation.array:
        says = (
            "a job array: every task has a SLURM_ARRAY_TASK_ID of its own, and one launch was read"
        )
        problems.append(Problem("slurm_array", "unread", says, allocation.array.place))
    return allocation, bool(words) and mark == "#SBATCH", tuple(problems)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def disagreements(
    request: Allocation, nodes: Word | None, ranks_per_node: Word | None, *, by_srun: bool
) -> Iterable[Problem]:
    """Where torchrun counts otherwise than Slurm. `by_srun`: srun starts it, on every task."""
    is_default = request.nodes is not None and request.nodes.fallback
    allotted = None if is_default else number(request.nodes)
    per_node = number(request.per_node) or 1
    stated = number(nodes) if nodes else 1
    if allotted and stated and (nodes or by_srun):
        starters = allotted * per_node if by_srun else allotted
        if stated != starters:
            place = nodes.place if nodes else request.nodes.place if request.nodes else None
            counted = f"{allotted} nodes" + (f" with {per_node} tasks each" if per_node > 1 else "")
            says = f"the job has {counted}, torchrun counts {stated}: make them agree"
            verdict: Verdict = "illegal" if nodes else "unread"  # without --nodes nothing is stated
            idle = stated == 1 and not by_srun
            yield Problem("world_size_disagrees", "ignored" if idle else verdict, says, place)
    gpus, started = number(request.on_node), number(ranks_per_node)
    if ranks_per_node and gpus and started and gpus != started:
        says = f"the job has {gpus} GPUs a node, torchrun starts {started} ranks: make them agree"
        yield Problem(
            "world_size_disagrees",
            "illegal" if started > gpus else "ignored",
            says,
            ranks_per_node.place,
        )
