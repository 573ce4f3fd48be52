"""Launches inside manifests of Kubernetes, tasks of SkyPilot and the like, values of helm charts.

The command of a container is read as any other, with the variables that the container and its
operator set, and with as many nodes, ranks and GPUs as the manifest asks for.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import islice
from typing import Any

from trainplan.costmodel.base import PlanError, UnsupportedError
from trainplan.planner.formats import format_of
from trainplan.planner.launchers.skypilot import ACCELERATORS
from trainplan.planner.shell import (
    Allocation,
    Host,
    Launch,
    Place,
    Word,
    launch_of_command,
    launches_of_script,
)

Tree = Mapping[str, Any]
Reads = Callable[[str], str | None]
_TABLE = tomllib.loads(
    resources.files("trainplan.planner.launchers").joinpath("manifests.toml").read_text("utf-8")
)
_KUBERNETES, _TASKS = _TABLE["kubernetes"], _TABLE["task"]
_GPUS = _TABLE["gpu"] | {name.lower(): gpu for gpu, name in ACCELERATORS.items()}
_VALUES = re.compile(r"values[\w.-]*\.ya?ml", re.IGNORECASE)
_SHELL = re.compile(r"(?:.*/)?(?:ba|z|da|k)?sh")
_RUNS_TEXT = re.compile(r"-\w*c")
_VARIABLE = re.compile(r"\$\((\w+)\)")
_MOST_COPIES = 1 << 20
_TEMPLATE = re.compile(r"\{\{.*\}\}|\{%")
_DEEPEST, _LARGEST, _MOST = 40, 20_000, 200
"""Sections in sections, sections, and containers that are looked at: aliases may repeat them."""
_COMMANDS = ("command", "entrypoint", "script", "run", "cmd")


@dataclass(frozen=True, slots=True)
class _Pods:
    """Equal containers."""

    container: Tree
    copies: int
    labels: Tree
    """Of the nodes that they may run on."""
    is_counted: bool
    """Does the manifest state how many?"""

    @property
    def words(self) -> list[str]:
        """What a container runs; empty: what its image says."""
        return [*_words(self.container.get("command")), *_words(self.container.get("args"))]

    @property
    def gpus(self) -> tuple[str, str] | None:
        """Resource and count that a container is given."""
        given = self.container.get("resources") or self.container.get("resourcesPerNode")
        for kind in ("limits", "requests"):
            amounts = _at(given, kind) or {}
            for name in _KUBERNETES["gpus"] if isinstance(amounts, Mapping) else ():
                if str(amounts.get(name, "0")) != "0":
                    return name, str(amounts[name])
        return None


def launches_of_manifest(
    documents: Sequence[Tree], text: str, file: str, settings: Mapping[str, str], read: Reads
) -> tuple[Launch, ...]:
    """The launches of a file of such documents; none: no command stands in it.

    `read` opens scripts that stand beside it; those of a ConfigMap go before.

    Raises:
        UnsupportedError: One does, and it starts no training that can be read.
    """
    if not documents and _TEMPLATE.search(text):
        raise UnsupportedError(
            f"{file} is a template with its values elsewhere: write out what it becomes "
            "(`helm template`), and check that"
        )
    found: list[Launch] = []
    refused: list[str] = []
    scripts = {name: one for tree in documents for name, one in _scripts(tree)}

    def opened(path: str) -> str | None:
        return scripts.get(path.rpartition("/")[2]) or read(path)

    for tree in documents:
        for kind, command, host in _workloads(tree, file):
            try:
                found += _read(command, replace(host, read=opened), text, file, settings)
            except PlanError as error:
                why = str(error).removeprefix(f"{file}: ")
                refused += [f"{kind}, and its command is not read: {why}"] if kind else []
    if refused and not found:
        raise UnsupportedError(f"{file} is {refused[0]}")
    return tuple(found)


def _workloads(tree: Tree, file: str) -> Iterator[tuple[str, object, Host]]:
    """What a document is, each command in it, and what that runs on.

    Of values of a chart, where any text may be a command, it is empty.
    """
    for name, keys in _TASKS.items():
        own = any(all(_at(tree, key) is not None for key in one) for one in keys["own"])
        command = _at(tree, keys["command"])
        if own and isinstance(command, (str, list)):
            lines = command if isinstance(command, str) else "\n".join(_words(command))
            yield f"a task of {name}", lines, _task(tree, keys, file)
            return
    if "apiVersion" in tree and "kind" in tree and tree["kind"] != "ConfigMap":
        kind = f"a {str(tree['kind'])[:40]} of Kubernetes"
        pods = list(islice(_pods(tree, None, {}, _Left()), _MOST))
        host = _cluster(tree, pods, file)
        yield kind, _at(tree, "spec.entrypoint"), host
        for one in {id(one.container): one for one in pods}.values():
            held = {**host.variables, **_environment(one.container.get("env"))}
            yield kind, one.words, replace(host, variables=held)
    elif format_of(tree) == "helm_values" or _VALUES.fullmatch(file.rpartition("/")[2]):
        for container in islice(_commanded(tree, _Left()), _MOST):
            variables = _environment(container.get("env") or container.get("envs"))
            for name in _COMMANDS:
                words = [*_words(container.get(name)), *_words(container.get("args"))]
                text = container.get(name) if isinstance(container.get(name), str) else words
                yield "", text, Host(variables)


def _task(tree: Tree, keys: Mapping[str, Any], file: str) -> Host:
    """What a task is given."""
    count = _at(tree, keys["nodes"])
    nodes = _word(1 if count is None else count, file, is_default=count is None)
    ranks = _word(_at(tree, keys.get("ranks", "")), file)
    named = next((one for one in (_at(tree, key) for key in keys["gpu"]) if one), None)
    if isinstance(named, Mapping):
        named = ",".join(f"{name}:{count}" for name, count in named.items())
    *kind, number = str(named or "").split(":")
    gpus = _word(number, file)
    kind = kind if gpus else [*kind, number]
    variables = dict(_environment(_at(tree, keys["environment"])))
    for name, word in (("nodes_are", nodes), ("gpus_are", gpus)):
        variables |= dict.fromkeys(keys.get(name, ()), word.text) if word else {}
    job = Allocation(nodes, None, ranks, gpus, gpu=_gpu("-".join(kind), file))
    if ranks and nodes:
        variables["WORLD_SIZE"] = str(int(nodes.text) * int(ranks.text))
    assumed = frozenset(keys.get("nodes_are", ())) if nodes and nodes.fallback else frozenset()
    return Host(variables, job, assumed=assumed)


def _cluster(tree: Tree, pods: Sequence[_Pods], file: str) -> Host:
    """What all containers of a workload are given together.

    Where some have GPUs, these count, and those that run the same.
    """
    training = [one.words for one in pods if one.gpus]
    workers = [one for one in pods if one.gpus or (one.words and one.words in training)] or pods
    count = sum(one.copies for one in workers)
    is_default = not all(one.is_counted for one in workers)
    nodes = _word(count or None, file, is_default=is_default)
    ranks = _word(next(_anywhere(tree, _KUBERNETES["ranks"], _Left()), None), file)
    resource, gpus = next((one.gpus for one in workers if one.gpus), ("", ""))
    labels = next((one.labels for one in workers if one.labels), {})
    kind = next((labels[name] for name in _KUBERNETES["labels"] if name in labels), None)
    if kind is None and resource and not resource.startswith("nvidia"):
        kind = resource
    each = _word(gpus or None, file)
    variables: dict[str, str] = {}
    for name, word in (("nodes_are", nodes), ("ranks_are", ranks or each)):
        sets = _KUBERNETES[name].get(str(tree["kind"]), ())
        variables |= dict.fromkeys(sets, word.text) if word else {}
    if tree["kind"] in _KUBERNETES["world_is"]:
        variables["WORLD_SIZE"] = str(count * int(ranks.text if ranks else 1))
    job = Allocation(nodes, None, None, each, gpu=_gpu(kind, file))
    assumed = {*_KUBERNETES["nodes_are"].get(str(tree["kind"]), ()), "WORLD_SIZE"}
    return Host(variables, job, assumed=frozenset(assumed if is_default else ()))


class _Left:
    """How much of a document may still be looked at."""

    def __init__(self) -> None:
        self.sections, self.depth = _LARGEST, 0

    def below(self, tree: object) -> Iterator[object]:
        """The members of a list, as far as that goes."""
        self.depth += 1
        for one in tree if isinstance(tree, list) and self.depth <= _DEEPEST else ():
            self.sections -= 1
            if self.sections < 0:
                break
            yield one
        self.depth -= 1


def _pods(tree: object, copies: int | None, labels: Tree, left: _Left) -> Iterator[_Pods]:
    """Containers below a section, with how many of them run; null: nothing states it so far."""
    if isinstance(tree, Mapping):
        if stated := _copies(tree):
            copies = math.prod(stated, start=1 if copies is None else copies)
        labels = _labels(tree) or labels
        own = (1 if copies is None else copies, labels, copies is not None)
        containers = tree.get("containers")
        for one in containers if isinstance(containers, list) else ():
            if isinstance(one, Mapping):
                yield _Pods(one, *own)
        if tree.keys() & {"command", "args"}:
            yield _Pods(tree, *own)
            return
        tree = [one for name, one in tree.items() if name not in ("containers", "initContainers")]
    for one in left.below(tree):
        yield from _pods(one, copies, labels, left)


def _copies(tree: Tree) -> list[int]:
    """Counts that a section states of what stands below it."""
    counts = (tree.get(name) for name in _KUBERNETES["copies"])
    known = (one for one in counts if isinstance(one, int) and not isinstance(one, bool))
    return [one for one in known if 0 <= one <= _MOST_COPIES]


def _anywhere(tree: object, names: Sequence[str], left: _Left) -> Iterator[object]:
    """Values of keys of these names."""
    if isinstance(tree, Mapping):
        yield from (tree[name] for name in names if name in tree)
        tree = list(tree.values())
    for one in left.below(tree):
        yield from _anywhere(one, names, left)


def _labels(tree: Tree) -> Tree:
    """Of the nodes that a pod may run on."""
    selected = tree.get("nodeSelector")
    found = dict(selected) if isinstance(selected, Mapping) else {}
    terms = _at(tree, "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution")
    for term in _at(terms, "nodeSelectorTerms") or () if isinstance(terms, Mapping) else ():
        for one in term.get("matchExpressions") or () if isinstance(term, Mapping) else ():
            values = one.get("values") if isinstance(one, Mapping) else None
            if isinstance(values, list) and len(values) == 1:
                found.setdefault(str(one.get("key")), values[0])
    return found


def _commanded(tree: object, left: _Left) -> Iterator[Tree]:
    """Sections with a command in them."""
    if isinstance(tree, Mapping):
        if any(isinstance(tree.get(name), (str, list)) for name in _COMMANDS):
            yield tree
        tree = list(tree.values())
    for one in left.below(tree):
        yield from _commanded(one, left)


def _scripts(tree: Tree) -> Iterator[tuple[str, str]]:
    """Files that a ConfigMap holds."""
    data = tree.get("data") if tree.get("kind") == "ConfigMap" else None
    for name, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str):
            yield str(name), text


def _read(
    command: object, host: Host, text: str, file: str, settings: Mapping[str, str]
) -> tuple[Launch, ...]:
    """The launches of a command: text, or words, which may give a shell its text."""
    if isinstance(command, list):
        known = {**host.variables, **settings}
        command = [_VARIABLE.sub(lambda m: known.get(m[1], m[0]), word) for word in command]
        if (inner := _inner(command)) is None:
            return (launch_of_command(command, settings, host),) if command else ()
        command = inner
    if not isinstance(command, str) or not command.strip():
        return ()
    own = replace(host, first=_first_line(command, text))
    return launches_of_script(command, file, settings, own)


def _inner(words: Sequence[str]) -> str | None:
    """The text that a shell is given; null: it is given none."""
    shell = bool(words) and bool(_SHELL.fullmatch(words[0]))
    runs = (at for at, one in enumerate(words[1:4], 2) if shell and _RUNS_TEXT.fullmatch(one))
    return next((words[at] for at in runs if at < len(words)), None)


def _first_line(inner: str, text: str) -> int | None:
    """Line of a file on which a block of text begins; null: it is not found."""
    wanted = [line.strip() for line in inner.rstrip("\n").split("\n")]
    lines = [line.strip() for line in text.split("\n")]
    starts = (at for at, line in enumerate(lines) if line == wanted[0])
    return next((at + 1 for at in starts if lines[at : at + len(wanted)] == wanted), None)


def _words(value: object) -> list[str]:
    """A list of words, or one text."""
    if isinstance(value, list):
        return [str(one) for one in value if isinstance(one, (str, int, float))]
    return [value] if isinstance(value, str) else []


def _environment(value: object) -> Mapping[str, str]:
    """Variables of a list of `name` and `value`, of `NAME=VALUE`, or of a mapping."""
    pairs: list[tuple[object, object]] = []
    if isinstance(value, Mapping):
        pairs = list(value.items())
    for one in value if isinstance(value, list) else ():
        if isinstance(one, Mapping) and "name" in one:
            pairs.append((one["name"], one.get("value")))
        elif isinstance(one, str):
            name, equals, text = one.partition("=")
            pairs.append((name, text if equals else None))
    known = ((str(k), v) for k, v in pairs if isinstance(v, (str, int, float)) and v != "")
    return {name: _text(value) for name, value in known}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _word(value: object, file: str, *, is_default: bool = False) -> Word | None:
    """A count of a manifest; what is none, such as `auto`, says nothing."""
    text = str(value)
    known = isinstance(value, (int, str)) and re.fullmatch(r"[1-9]\d{0,6}", text, re.ASCII)
    return Word(text, Place(file, None), fallback=is_default) if known else None


def _gpu(kind: object, file: str) -> Word | None:
    """The GPU by its name; the catalog's where a program calls another size by it."""
    if not kind:
        return None
    text = str(kind)
    return Word(_GPUS.get(text.lower(), text), Place(file, None))


def _at(tree: object, key: str) -> Any:  # noqa: ANN401 - of any kind
    """What stands at a key; null: nothing does."""
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
