"""What Slurm is asked for, by `#SBATCH` lines and by the options of srun.

Source: https://slurm.schedmd.com/sbatch.html and https://slurm.schedmd.com/srun.html (24.05).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest

from trainplan.planner.shell.launch import Place, Problem, Word, number
from trainplan.planner.shell.variables import Piece, Value


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes, tasks and GPUs, as far as they are stated."""

    nodes: Word | None = None
    tasks: Word | None = None
    tasks_per_node: Word | None = None
    gpus_per_node: Word | None = None
    array: Word | None = None

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

    def variables(self) -> dict[str, Value]:
        """What sbatch sets for the script."""
        named = {
            "SLURM_NNODES": self.nodes,
            "SLURM_JOB_NUM_NODES": self.nodes,
            "SLURM_NTASKS": self.tasks,
            "SLURM_NPROCS": self.tasks,
            "SLURM_NTASKS_PER_NODE": self.tasks_per_node,
            "SLURM_GPUS_PER_NODE": self.gpus_per_node,
            "SLURM_GPUS_ON_NODE": self.gpus_per_node,
        }
        return {
            name: (Piece(word.text, word.place),)
            for name, word in named.items()
            if word and number(word) is not None
        }


_NAMES = {
    "N": "nodes",
    "nodes": "nodes",
    "n": "tasks",
    "ntasks": "tasks",
    "ntasks-per-node": "tasks_per_node",
    "tasks-per-node": "tasks_per_node",
    "gpus-per-node": "gpus_per_node",
    "gres": "gpus_per_node",
    "gpus-per-task": "gpus_per_task",
    "a": "array",
    "array": "array",
}
_OPTION = re.compile(
    r"--(?P<long>[\w-]+)(?:=(?P<value>.*))?|-(?P<short>[Nna])(?P<joined>.*)", re.DOTALL
)
_GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?(\d+)")


def allocation_of(words: Sequence[Word]) -> Allocation:
    """Counts among the options of sbatch or srun."""
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
            gpus = _GPUS.match(value.text)
            value = replace(value, text=gpus[1]) if gpus and not value.unresolved else None
        if value:
            found[name] = value
    per_task = found.pop("gpus_per_task", None)
    allocation = Allocation(**found)
    if per_task and not allocation.gpus_per_node:
        tasks = number(allocation.per_node) or (1 if allocation.tasks is None else None)
        if tasks and (each := number(per_task)):
            return replace(allocation, gpus_per_node=replace(per_task, text=str(tasks * each)))
    return allocation


def directives(text: str, file: str | None) -> tuple[Allocation, bool, tuple[Problem, ...]]:
    """`#SBATCH` lines; are there any; those that Slurm ignores, behind the first command."""
    words: list[Word] = []
    problems: list[Problem] = []
    begun = False
    for at, line in enumerate(text.split("\n") if "#SBATCH" in text else (), start=1):
        place = Place(file, at)
        if line.startswith("#SBATCH"):
            if begun:
                says = "an #SBATCH line behind the first command is ignored: move it to the top"
                problems.append(Problem("sbatch_ignored", "ignored", says, place))
            else:
                words += [Word(word, place) for word in _words(line.removeprefix("#SBATCH"))]
        elif line.strip() and not line.lstrip().startswith("#"):
            begun = True
    allocation = allocation_of(words)
    if allocation.array:
        says = (
            "a job array: every task has a SLURM_ARRAY_TASK_ID of its own, and one launch was read"
        )
        problems.append(Problem("slurm_array", "unread", says, allocation.array.place))
    return allocation, bool(words), tuple(problems)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def disagreements(
    request: Allocation, nodes: Word | None, ranks_per_node: Word | None, *, by_srun: bool
) -> Iterable[Problem]:
    """Where torchrun counts otherwise than Slurm. `by_srun`: srun starts it, on every task."""
    allotted, per_node = number(request.nodes), number(request.per_node) or 1
    stated = number(nodes) if nodes else 1
    if allotted and stated and (nodes or by_srun):
        starters = allotted * per_node if by_srun else allotted
        if stated != starters:
            place = nodes.place if nodes else request.nodes.place if request.nodes else None
            counted = f"{allotted} nodes" + (f" with {per_node} tasks each" if per_node > 1 else "")
            says = f"Slurm gives {counted}, torchrun counts {stated}: make them agree"
            idle = stated == 1 and not by_srun
            yield Problem("world_size_disagrees", "ignored" if idle else "illegal", says, place)
    gpus, started = number(request.gpus_per_node), number(ranks_per_node)
    if ranks_per_node and gpus and started and gpus != started:
        says = f"Slurm gives {gpus} GPUs a node, torchrun starts {started} ranks: make them agree"
        yield Problem(
            "world_size_disagrees",
            "illegal" if started > gpus else "ignored",
            says,
            ranks_per_node.place,
        )
