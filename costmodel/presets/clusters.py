"""Clusters as people write them: short forms, racks, machines of clouds.

`8x8:h100-sxm` states all of a cluster; `64xh100`, `2xp5.48xlarge` and `gb200-nvl72` leave something
to the data of `clusters.toml` beside this file, and what was taken from it is said in a line.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pydantic import PositiveInt

from trainplan.costmodel import catalog
from trainplan.costmodel.base import CatalogError, SpecError, shortened, unknown_name
from trainplan.costmodel.hardware import (
    DIGITS,
    MOST_GPUS,
    MOST_GPUS_PER_NODE,
    MOST_NODES,
    ClusterSpec,
    HostSpec,
    NicSpec,
    NodeGroup,
)
from trainplan.costmodel.spec import Spec

FORMS = (
    "write NODESxGPUS:GPU such as 8x8:h100, a count of GPUs such as 64xh100, a machine such as "
    "2xp5.48xlarge or gb200-nvl72 (`plan catalog clusters`), or the path of a YAML file"
)
NAME = r"(?=[\d._-]*[A-Za-z])[A-Za-z0-9._-]+"
HOST = rf"(@(?P<host>{NAME}))?"
TIMES = " *[xX*] *"
NODES = re.compile(rf"(?P<nodes>\d+){TIMES}(?P<gpus>\d+) *[: ] *(?P<name>{NAME}){HOST}")
"""`8x8:h100-sxm@dgx-h100`: nodes, GPUs of each, their kind and their host."""
COUNT = re.compile(rf"((?P<count>\d+)({TIMES}| +))?(?P<name>{NAME}){HOST}")
"""`64xh100`, `8 h100`, `2xp5.48xlarge`, `gb200-nvl72`."""


class Machine(Spec):
    """What has a name of its own: a server, a machine of a cloud, or a rack of nodes."""

    gpu: str
    gpus_per_node: PositiveInt
    nodes: PositiveInt = 1
    """Nodes of one of them: more than one in a rack."""
    nvlink_domain: PositiveInt | None = None
    nic: NicSpec | None = None
    """Adapters of a node for the traffic of its GPUs; null: as the GPU's catalog entry has it."""
    host: str | None = None
    """A name of the hosts of the catalog."""
    aliases: tuple[str, ...] = ()
    source: str


class _File(Spec):
    """Contents of `clusters.toml`."""

    short_names: dict[str, str]
    machine: dict[str, Machine]


@dataclass(frozen=True, slots=True)
class Written:
    """A cluster, and what of it was not in the text."""

    cluster: ClusterSpec
    remarks: tuple[str, ...] = ()


@cache
def _file() -> _File:
    text = (
        resources.files("trainplan.costmodel.presets").joinpath("clusters.toml").read_text("utf-8")
    )
    return _File.model_validate(tomllib.loads(text))


def machines() -> Mapping[str, Machine]:
    """Machines and racks by name, in the order of the catalog."""
    return _file().machine


def short_names() -> Mapping[str, str]:
    """Short names of GPUs, and the GPU each is taken for."""
    return _file().short_names


def cluster_of(text: str) -> ClusterSpec:
    """The cluster of a text, as `read_cluster`, without its remarks."""
    return read_cluster(text).cluster


def read_cluster(text: str) -> Written:
    """Read `8x8:h100-sxm[@HOST]`, `64xh100`, `2xp5.48xlarge`, `gb200-nvl72`; `+` joins groups.

    Raises:
        SpecError: The text is of none of these forms, or a count is zero or too large.
        CatalogError: No GPU, machine or host has that name.
    """
    parts = [_part(part.strip()) for part in text.split("+")]
    cluster = ClusterSpec(
        name="+".join(name for name, _, _ in parts), groups=tuple(group for _, group, _ in parts)
    )
    if cluster.num_gpus > MOST_GPUS:
        raise _too_large(text)
    return Written(cluster, tuple(remark for _, _, remark in parts if remark))


Part = tuple[str, NodeGroup, str]
"""Its name in full, what it is, and what was not in the text."""


def _part(text: str) -> Part:
    if match := NODES.fullmatch(text):
        nodes, gpus = _number(text, match["nodes"]), _number(text, match["gpus"])
        return _of_nodes(text, nodes, gpus, gpu_intended(match["name"]), match["host"])
    match = COUNT.fullmatch(text)
    if match is None:
        raise SpecError(f"cluster {shortened(text)!r} is none: {FORMS}")
    machine = machine_named(match["name"])
    if machine is not None:
        return _of_machines(text, _number(text, match["count"] or "1"), machine, match["host"])
    if match["count"] is None:
        raise SpecError(f"cluster {shortened(text)!r} is neither a machine nor a count: {FORMS}")
    gpu = gpu_intended(match["name"], machines())
    return _of_gpus(text, _number(text, match["count"]), gpu, match["host"])


def _of_nodes(text: str, nodes: int, gpus: int, gpu: str, host: str | None) -> Part:
    """`8x8:h100`; a domain of several nodes is cut into the nodes it is made of."""
    spec, remark = catalog.gpu(gpu), _intended(text, gpu)
    if gpus > spec.gpus_per_node and spec.nvlink_domain >= gpus and not gpus % spec.gpus_per_node:
        nodes, gpus = nodes * gpus // spec.gpus_per_node, spec.gpus_per_node
        remark = f"cluster {text}: {nodes} nodes of {gpus} {gpu} in one NVLink domain"
    return _group(text, nodes, gpus, gpu, host=host, remark=remark)


def _of_gpus(text: str, count: int, gpu: str, host: str | None) -> Part:
    """`64xh100`: in nodes of the usual size, or in one that is not full."""
    usual = catalog.gpu(gpu).gpus_per_node
    gpus = min(count, usual)
    if count % gpus:
        raise SpecError(
            f"cluster {shortened(text)!r}: {count:,} GPUs fill no nodes of {usual} {gpu}: write "
            f"NODESxGPUS:{gpu}, or a multiple of {usual}"
        )
    nodes = count // gpus
    some = f"{nodes:,} nodes" if nodes > 1 else "1 node"
    remark = f"cluster {text}: {some} of {gpus} {gpu}"
    return _group(text, nodes, gpus, gpu, host=host, remark=remark)


def _of_machines(text: str, count: int, name: str, host: str | None) -> Part:
    machine = machines()[name]
    nodes = count * machine.nodes
    if nodes > MOST_NODES:
        raise _too_large(text)
    known = host or machine.host
    group = NodeGroup(
        gpu=machine.gpu,
        num_nodes=nodes,
        gpus_per_node=machine.gpus_per_node,
        nvlink_domain=machine.nvlink_domain,
        nic=machine.nic,
        host=_host(known),
    )
    some = f"{nodes:,} nodes" if nodes > 1 else "1 node"
    remark = f"cluster {text}: {some} of {machine.gpus_per_node} {machine.gpu}"
    if machine.nic:
        share = machine.nic.per_node * machine.nic.gb_per_s / machine.gpus_per_node
        kind = f" ({machine.nic.transport})" if machine.nic.transport else ""
        remark += f", {share:.3g} GB/s of network{kind} for each GPU"
    return f"{count}x{name}", group, remark


def _group(text: str, nodes: int, gpus: int, gpu: str, *, host: str | None, remark: str) -> Part:
    if nodes > MOST_NODES or gpus > MOST_GPUS_PER_NODE:
        raise _too_large(text)
    group = NodeGroup(gpu=gpu, num_nodes=nodes, gpus_per_node=gpus, host=_host(host))
    return f"{nodes}x{gpus}:{gpu}" + (f"@{host}" if host else ""), group, remark


def _host(name: str | None) -> HostSpec | None:
    if name is None:
        return None
    catalog.host(name)
    return HostSpec(like=name)


def _intended(text: str, gpu: str) -> str:
    """What a short name was taken for; empty where it is the GPU's own."""
    return "" if gpu in re.split("[:@ ]", text) else f"cluster {text}: {gpu}"


def _number(text: str, digits: str) -> int:
    if len(digits) > DIGITS:
        raise _too_large(text)
    if int(digits) == 0:
        raise SpecError(
            f"cluster {shortened(text)!r} has no GPUs: nodes and GPUs per node must be >= 1"
        )
    return int(digits)


def _too_large(text: str) -> SpecError:
    return SpecError(
        f"cluster {shortened(text)!r} is too large: at most {MOST_GPUS:,} GPUs are planned, "
        f"{MOST_GPUS_PER_NODE:,} in a node"
    )


def machine_named(text: str) -> str | None:
    """The catalog's name of a machine in another spelling; null: there is none."""
    return _machine_spellings().get(_plain(text))


def gpu_intended(text: str, alongside: Mapping[str, object] | None = None) -> str:
    """The GPU of a name, of its driver's or of a short one; the only one that begins like it.

    Raises:
        CatalogError: There is none, or several; the message names the nearest, also of `beside`.
    """
    if text in catalog.gpu_names():
        return text
    found = catalog.gpu_named(text) or short_names().get(text.lower().replace("_", "-"))
    if found:
        return found
    begins = [name for name in catalog.gpu_names() if name.startswith(f"{text.lower()}-")]
    if len(begins) == 1:
        return begins[0]
    if begins:
        raise CatalogError(
            f"GPU {shortened(text)!r} may be {' or '.join(begins)}: name one of them"
        )
    hint = "`plan catalog gpus` lists GPUs, `plan catalog clusters` machines"
    kind = "GPU or machine" if alongside else "GPU"
    raise unknown_name(kind, text, [*catalog.gpu_names(), *(alongside or ())], hint)


def gpus_called(text: str, *, memory_alone: bool = False) -> tuple[str, ...]:
    """GPUs that a name of a scheduler or a cloud may be, the usual first; empty: there is none.

    `a100` leaves open which, `v100-32g`, `a100_80` and `nvidia-h100-mega-80gb` say more.
    `memory_alone`: a size in GB without a kind, such as `hbm80g`, is one as well.
    """
    if exact := catalog.gpu_named(text):
        return (exact,)
    words = [word for word in _BETWEEN.split(text.lower()) if word and word not in _SAY_NOTHING]
    joined = "".join(words[:2])
    kinds = [("".join(words[:1]), words[1:]), (joined, words[2:])] if words else []
    for kind, others in (*kinds, *([("", words)] if memory_alone else [])):
        named = [one for one in catalog.gpu_names() if _is_kind(one, kind)]
        found = [one for one in named if all(_agrees(one, word) for word in others)]
        if found and (kind or others):
            return tuple(sorted(found, key=lambda one: _unusual(one, kind)))
    return ()


_BETWEEN = re.compile(r"[\s_.:/-]+")
_SAY_NOTHING = frozenset(
    ("nvidia", "amd", "tesla", "instinct", "geforce", "gpu", "mega", "hbm2", "hbm2e", "hbm3", "ib")
)
_MEMORY = re.compile(r"(?:hbm|gpu|mem|vram)?(\d{2,3})g?i?b?")
_FORM = re.compile(r"(?P<sxm>sxm\d?|hgx|dgx|nvlink)|(?P<pcie>pcie?)")
_NEAR = 0.06
"""Of a size as it is called: 80 GB are 79.65 GiB, 141 GB are 140.4."""


def _is_kind(gpu: str, kind: str) -> bool:
    """Is it of a family (`a100`) or of an architecture (`volta`); of any where none is named?"""
    family = short_names().get(kind, kind).partition("-")[0]
    return not kind or family == gpu.partition("-")[0] or kind == catalog.gpu(gpu).architecture


def _agrees(gpu: str, word: str) -> bool:
    """Does a GPU have the memory, or the form, that a word of a name says?"""
    if form := _FORM.fullmatch(word):
        return ("pcie" in gpu) == bool(form["pcie"])
    size, memory = _MEMORY.fullmatch(word), catalog.gpu(gpu).memory_gib.value
    return word in gpu.split("-") or bool(size and abs(memory / int(size[1]) - 1) < _NEAR)


def _unusual(gpu: str, kind: str) -> tuple[bool, bool, float]:
    """Order of GPUs that may be: the first that has a short name, boards, the larger memory."""
    usual = next((one for one in short_names().values() if kind and _is_kind(one, kind)), None)
    return gpu != usual, "pcie" in gpu, -catalog.gpu(gpu).memory_gib.value


@cache
def _machine_spellings() -> Mapping[str, str]:
    named = ((name, (name, *machine.aliases)) for name, machine in machines().items())
    return {_plain(called): name for name, names in named for called in names}


def _plain(name: str) -> str:
    """A machine's name without case, what stands between its words, and Azure's first word."""
    return re.sub(r"[_-]", "", name.lower()).removeprefix("standard")
