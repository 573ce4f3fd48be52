"""Which commands start training, and on how many ranks."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, islice, pairwise, takewhile

from trainplan.planner.shell.launch import Launch, Problem, Word, number
from trainplan.planner.shell.options import OPTIONS, PROGRAMS, TABLE, Split, split
from trainplan.planner.shell.slurm import Allocation, allocation_of, disagreements, patterned

_PYTHON = re.compile(r"python[\d.]*")
_SHELL = re.compile(r"(ba|z|da|k)?sh")
_RUNS_TEXT = re.compile(r"-[a-z]*c")
_SCRIPT = re.compile(r"[^-\s]\S*\.(?:(?:ba)?sh|sbatch|slurm|job|pbs|qsub)")
_VALUED_OF_SHELL = re.compile(r"[-+][a-z]*[oO]|--rcfile|--init-file")
_MPI, _TASKS = PROGRAMS["mpi"], PROGRAMS["tasks"]
QUEUES = PROGRAMS["queues"]
_CONTAINER = re.compile(r"(?:nemo|megatron)[\w./-]*:v?\d")
_EXPORTS = re.compile(r"^(?:--export=(?:(?:ALL|NONE|NIL),)?|(?:ALL|NONE|NIL),)")
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as far as it matters: what starts it, and what that is given."""

    starter: str | None
    """Null: it starts no training."""
    rest: tuple[Word, ...] = ()
    """Behind the starter's name; of a shell, the text that it runs; of a script, its file."""
    outer: tuple[Word, ...] = ()
    """Before it: srun and others, with their options."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around a command."""

    environment: Mapping[str, Word]
    job: Allocation
    """Of Slurm."""
    outer: tuple[Word, ...] = ()
    problems: tuple[Problem, ...] = ()


def basename(word: Word) -> str:
    """The last part of a path."""
    return word.text.rpartition("/")[2]


def command_of(words: Sequence[Word], *, inside: bool = False) -> Command:
    """What a command starts; `shell` of one that runs text, `script` of one that runs a file.

    A script without a file is one that is read from what is given to the command.
    """
    head = basename(words[0])
    trains = max((at for at, w in enumerate(words) if w.text[-3:] in (".py", "-m")), default=0)
    looks = head == "command" and words[1:] and words[1].text in ("-v", "-V")
    for at, word in enumerate(() if looks or head in PROGRAMS["tools"] else words):
        is_known = not at or head in PROGRAMS["wrappers"]
        named = _named(words, at)
        if named and named[0] != "shell" and not is_known and at >= trains:
            named = None
        problems = () if is_known else (_unknown(words[0]),)
        if named and not (at and words[at - 1].text == "-w"):
            name, skipped = named
            command = Command(name, tuple(words[at + skipped :]), tuple(words[:at]), problems)
            return _started(command, tuple(words[at : at + skipped]), inside=inside)
        if _SHELL.fullmatch(basename(word)):
            return Command("script", _file(words[at + 1 :]), tuple(words[: at + 1]), problems)
        if _SCRIPT.fullmatch(word.text):
            return Command("script", tuple(words[at:]), tuple(words[:at]), problems)
        is_wrapped = head not in QUEUES or "--wrap" in (words[at - 1].text, word.text[:6])
        if at and head in PROGRAMS["remote"] and is_wrapped and " " in word.text.strip():
            text = replace(word, text=word.text.removeprefix("--wrap="))
            return Command("shell", (text,), tuple(words[:at]))
    return Command("script", (), tuple(words)) if head in QUEUES else Command(None)


def behind(script: Command) -> Command:
    """What stands behind a script that was not opened, and is perhaps started by it."""
    trains = any(word.text[-3:] in (".py", "-m") for word in script.rest[1:])
    inner = command_of(script.rest[1:]) if trains else Command(None)
    if inner.starter not in OPTIONS:
        return Command(None)
    outer = (*script.outer, script.rest[0], *inner.outer)
    return replace(inner, outer=outer, problems=(_unknown(script.rest[0]),))


def _unknown(word: Word) -> Problem:
    says = f"what {word.text} does to the command behind it is known only in a run"
    return Problem("starter_unread", "unread", says, word.place)


def _file(words: Sequence[Word]) -> tuple[Word, ...]:
    """Script of a shell and its arguments; none: it reads what it is given."""
    at = 0
    while at < len(words) and words[at].text[:1] in ("-", "+"):
        if words[at].text in ("-s", "-"):
            return ()
        at += 2 if _VALUED_OF_SHELL.fullmatch(words[at].text) else 1
    return tuple(words[at:])


def _started(command: Command, starter: tuple[Word, ...], *, inside: bool) -> Command:
    """What `torchrun --no-python` starts, or the command itself."""
    options = OPTIONS.get(command.starter or "")
    if inside or options is None or "no_python" not in options.flags:
        return command
    parts = split(command.rest, options)
    if parts.program is None or "no_python" not in parts.given:
        return command
    at = len(command.rest) - len(parts.arguments) - 1
    inner = command_of(command.rest[at:], inside=True)
    outer = (*command.outer, *starter, *command.rest[:at], *inner.outer)
    problems = (*command.problems, *parts.problems, *inner.problems)
    return replace(inner, outer=outer, problems=problems) if inner.starter else command


def _handed_over(arguments: Sequence[Word]) -> Command | None:
    """The command behind `--` that a program is given to start; null: there is none."""
    at = next((n for n, word in enumerate(arguments) if word.text == "--"), None)
    inner = command_of(arguments[at + 1 :]) if at is not None and arguments[at + 1 :] else None
    return inner if inner and inner.starter in OPTIONS else None


def set_by(outer: Sequence[Word]) -> dict[str, Word]:
    """Variables that `env`, `srun --export=ALL,NAME=VALUE`, `qsub -v`, `mpirun -x` set."""
    found: dict[str, Word] = {}
    for at, word in enumerate(outer):
        is_list = _EXPORTS.match(word.text) or (at and outer[at - 1].text == "-v")
        texts = _EXPORTS.sub("", word.text).split(",") if is_list else [word.text]
        for text in filter(_VARIABLE.fullmatch, texts):
            name, _, value = text.partition("=")
            is_known = not re.search(r"[$`<]", value)
            found[name] = Word(value, word.place, () if is_known else word.unresolved)
    return found


def _named(words: Sequence[Word], at: int) -> tuple[str, int] | None:
    """Starter that a word names, and how many words name it."""
    name = basename(words[at])
    after = [word.text for word in words[at + 1 : at + 4]]
    if name in ("torchrun", "deepspeed"):
        return name, 1
    if name == "accelerate" and after[:1] == ["launch"]:
        return name, 2
    commands = TABLE["console"].get(name, "").split()
    if commands == ["*"] or (after[:1] and after[0].replace("-", "_") in commands):
        return "console", 0
    if _SHELL.fullmatch(name):
        runs = next((n for n, text in enumerate(after) if _RUNS_TEXT.fullmatch(text)), None)
        return None if runs is None or runs + 1 >= len(after) else ("shell", runs + 2)
    if name == "uv" and after[:1] == ["run"]:
        return _run_by_uv(words, at)
    return ("python", 1) if _PYTHON.fullmatch(name) else None


def _run_by_uv(words: Sequence[Word], at: int) -> tuple[str, int] | None:
    """`uv run train.py`, `uv run -m train`: python by itself; null: a command of its own.

    Source: `uv run --help`.
    """
    for n, word in enumerate(words[at + 2 :], start=2):
        if word.text.endswith(".py") or word.text in ("-m", "--module"):
            return "python", n
        is_option = word.text.startswith("-")
        if not is_option and (n == 2 or not words[at + n - 1].text.startswith("-")):
            return None
        if not is_option and _named(words, at + n):
            return None
    return None


def launch_of(command: Command, around: Surroundings) -> Launch | None:
    """The launch that a command is; null: it is none."""
    name, rest = command.starter, command.rest
    if name == "python":
        name, rest = _behind_python(rest)
    outer = (*around.outer, *command.outer)
    environment = {**around.environment, **set_by(outer)}
    if name == "console":
        launch = Launch(
            name,
            rest[0],
            is_module=False,
            arguments=rest[1:],
            environment=environment,
            problems=(*around.problems, *command.problems),
        )
        return _counted(launch, split((), OPTIONS["python"]), outer, around.job)
    if name is None or name not in OPTIONS:
        return None
    parts = split(rest, OPTIONS[name])
    is_module, program = parts.is_module, parts.program
    if name == "python" and rest and (found := _module(rest)):
        program, arguments = found
        is_module = True
        of_python = rest[: len(rest) - len(arguments) - 2]  # before `-m MODULE`
        parts = replace(split(of_python, OPTIONS[name]), arguments=arguments)
    if program and name == "python" and (inner := _handed_over(parts.arguments)):
        outer = (*command.outer, program, *inner.outer)
        problems = (*command.problems, _unknown(program), *inner.problems)
        return launch_of(replace(inner, outer=outer, problems=problems), around)
    if program is None or (
        name == "python" and (_aside(program, is_module=is_module) or "c" in parts.given)
    ):
        return None
    launch = Launch(
        starter=name,
        program=program,
        is_module=is_module,
        arguments=parts.arguments,
        environment=environment,
        starter_arguments=() if name == "python" else parts.others,
        container=next((word for word in outer if _CONTAINER.search(word.text)), None),
        problems=(*around.problems, *command.problems, *parts.problems),
    )
    return _counted(launch, parts, outer, around.job)


def _behind_python(rest: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """Python may run a starter as a module, or as a file."""
    if found := _module(rest):
        module, arguments = found
        if module.text in TABLE["modules"]:
            return TABLE["modules"][module.text], arguments
        if module.text == "accelerate.commands.accelerate_cli":
            return "accelerate", arguments[1:]
        return "python", rest
    program = split(rest, OPTIONS["python"]).program
    at = rest.index(program) if program else 0
    if program and (named := _named(rest, at)) and named[0] != "python":
        return named[0], rest[at + named[1] :]
    if program and re.search(r"which torchrun\b", program.text):
        return "torchrun", rest[at + 1 :]
    return "python", rest


def _module(rest: Sequence[Word]) -> tuple[Word, tuple[Word, ...]] | None:
    """`-m MODULE`, before any program."""
    for at, word in enumerate(rest[:-1]):
        if word.text == "-m":
            return rest[at + 1], tuple(rest[at + 2 :])
        if word.text[:1] != "-" and not (at and rest[at - 1].text in ("-W", "-X")):
            return None
    return None


def _aside(program: Word, *, is_module: bool) -> bool:
    """Is it a tool rather than training?"""
    return (
        program.text in PROGRAMS["no_training"]
        if is_module
        else basename(program) in ("setup.py", "-")
    )


def _counted(launch: Launch, parts: Split, outer: Sequence[Word], job: Allocation) -> Launch:
    """Nodes and ranks, as the starter counts them, and the GPUs that the scheduler names."""
    for at in range(len(outer) if launch.starter in ("python", "console") else 0):
        starter, skipped = _named(outer, at) or ("python", 1)
        if starter in OPTIONS and starter != "python":  # --no-python
            parts = split(outer[at + skipped :], OPTIONS[starter])
            launch = replace(launch, starter=starter, starter_arguments=parts.others)
    heads = [basename(word) for word in outer]
    by_srun = any(head in _TASKS for head in heads)
    request = allocation_of(_options(outer, _TASKS)).over(job) if by_srun else job
    counted = _of_starter(launch, parts.given, request) or _of_tasks(launch, outer, request)
    if launch.starter == "torchrun":
        nodes, ranks = counted.nodes, counted.gpus_per_node
        wrong = tuple(disagreements(request, nodes, ranks, by_srun=by_srun))
        counted = replace(counted, problems=(*counted.problems, *wrong))
    return replace(counted, gpu=request.gpu, features=request.features)


def _of_starter(launch: Launch, given: Mapping[str, Word], request: Allocation) -> Launch | None:
    """Ranks of what starts all of a node; null: it starts one."""
    if launch.starter == "torchrun":
        nodes, ranks = (
            _count(given, name) or launch.environment.get(f"PET_{name.upper()}")
            for name in ("nnodes", "nproc_per_node")
        )
        return replace(
            launch,
            nodes=_known(nodes, request.nodes),
            gpus_per_node=_known(ranks, request.on_node),
        )
    if launch.starter == "deepspeed":
        nodes, slots = _included(given.get("include"))
        nodes = _count(given, "num_nodes") or nodes
        gpus = _count(given, "num_gpus") or _count(given, "num_accelerators") or slots
        return replace(launch, nodes=nodes, gpus_per_node=gpus or request.on_node)
    if launch.starter == "accelerate":
        nodes, total = _count(given, "num_machines"), _count(given, "num_processes")
        return replace(launch, nodes=nodes, gpus_per_node=_share(total, nodes), ranks=total)
    return None


def _of_tasks(launch: Launch, outer: Sequence[Word], request: Allocation) -> Launch:
    """Ranks of what starts each by itself."""
    heads = [basename(word) for word in outer]
    alone = launch.starter == "console" and (number(request.per_node) or 1) == 1
    if any(head in _TASKS for head in heads) and not alone:
        launch = replace(launch, starter="srun", nodes=request.nodes, ranks=request.tasks)
        return replace(launch, gpus_per_node=request.per_node)
    if set(_MPI).intersection(heads):
        return _by_mpi(launch, _options(outer, _MPI), request)
    if "jsrun" in heads:
        return _by_jsrun(launch, _options(outer, ("jsrun",)))
    if launch.starter == "console":  # on all GPUs of a node
        return replace(launch, nodes=request.nodes, gpus_per_node=request.on_node)
    world = launch.environment.get("WORLD_SIZE")
    return replace(launch, ranks=world) if world and number(world) else launch


def _known(stated: Word | None, allotted: Word | None) -> Word | None:
    """A count as it stands, or, where a run alone tells it, as the scheduler allots."""
    if stated is None or not stated.unresolved or number(allotted) is None:
        return stated
    assert allotted is not None
    return replace(stated, text=allotted.text, unresolved=(), fallback=allotted.fallback)


def _options(outer: Sequence[Word], names: Collection[str]) -> list[Word]:
    """Options of one of the programs that stand before a starter."""
    behind = dropwhile(lambda word: basename(word) not in names, outer)
    return list(
        takewhile(lambda word: basename(word) not in PROGRAMS["wrappers"], islice(behind, 1, None))
    )


def _count(given: Mapping[str, Word], name: str) -> Word | None:
    """A count as given; what is no number is known only in a run."""
    word = given.get(name)
    if word is None or word.unresolved or number(word) is not None:
        return word
    return replace(word, unresolved=(f"--{name} {word.text}",))


def _share(total: Word | None, nodes: Word | None) -> Word | None:
    """Ranks of a node."""
    ranks, on = number(total), number(nodes) if nodes else 1
    if not total or not ranks or not on or ranks % on:
        return None
    return replace(total, text=str(ranks // on))


def _included(include: Word | None) -> tuple[Word | None, Word | None]:
    """Nodes and GPUs of `--include host:0,1@other:0,1`."""
    if include is None or include.unresolved:
        return include, include
    hosts = include.text.split("@")
    slots = {len(host.partition(":")[2].split(",")) for host in hosts if ":" in host}
    gpus = replace(include, text=str(slots.pop())) if len(slots) == 1 else None
    return replace(include, text=str(len(hosts))), gpus


def _by_mpi(launch: Launch, options: Sequence[Word], request: Allocation) -> Launch:
    """`-np 32 -npernode 8`, `--map-by ppr:8:node`; without, the tasks of the job."""
    total = per_node = None
    for word, after in pairwise(options):
        name = word.text.lstrip("-")
        if name in ("np", "n", "c"):
            total = after
        elif name in ("npernode", "N", "ppn"):
            per_node = after
        elif name == "map-by" and (ppr := re.match(r"ppr:(\d+):node", after.text)):
            per_node = replace(after, text=ppr[1])
    total, per_node = total or request.tasks, per_node or request.per_node
    ranks, on_each = number(total), number(per_node)
    nodes = None
    if total and ranks and on_each and ranks % on_each == 0:
        nodes = replace(total, text=str(ranks // on_each))
    return replace(
        launch,
        starter="mpirun",
        nodes=nodes or request.nodes,
        gpus_per_node=per_node,
        ranks=total,
    )


def _by_jsrun(launch: Launch, options: Sequence[Word]) -> Launch:
    """`-n 16 -r 4 -a 2`: resource sets, those of a host, tasks of each.

    Source: https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=jsm-jsrun.
    """
    found = patterned("jsrun", options)
    sets, hosts, each = map(number, (found.nodes, found.tasks_per_node, found.tasks))
    if not sets or found.nodes is None:
        return replace(launch, starter="mpirun", ranks=found.nodes)
    ranks, on_host = sets * (each or 1), (hosts or sets) * (each or 1)
    nodes, gpus, total = (
        replace(found.nodes, text=str(n)) for n in (sets // (hosts or sets), on_host, ranks)
    )
    if ranks % on_host:
        return replace(launch, starter="mpirun", ranks=total)
    return replace(launch, starter="mpirun", nodes=nodes, gpus_per_node=gpus, ranks=total)
