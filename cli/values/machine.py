"""Where it is trained, as it may be given: a cluster, counts and a GPU, or this machine.

With what a named cluster need not have a file for: its network adapters, the power of a board, its
price, and how its nodes fail.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click
from pydantic import ValidationError

from trainplan.cli.files import machines_of
from trainplan.cli.options import parameters
from trainplan.cli.terminal import remark
from trainplan.costmodel import catalog
from trainplan.costmodel.base import SpecError, shortened
from trainplan.costmodel.calibration import Measured
from trainplan.costmodel.hardware import (
    MOST_GPUS_PER_NODE,
    ClusterSpec,
    FailureSpec,
    NicSpec,
    NodeGroup,
)
from trainplan.costmodel.presets import gpu_intended, machine_named
from trainplan.costmodel.spec import first_complaint
from trainplan.profiler.host import visible_gpus

NO_GPU = "no GPU is visible here"
COUNTED = "--gpus 64 --gpu h100, or --nodes 8 --gpus 8 --gpu h100"
NIC_FORMS = (
    "write 400Gb/s (one adapter of that speed for each GPU), 4x100Gb/s (adapters of a node) or "
    "3200Gb/s/node, in Gb/s or GB/s"
)
PRICE_FORMS = "write money for one GPU and hour, such as 2.5, '$2.5' or 'EUR 2'"
_NIC = re.compile(
    r"((?P<count>\d{1,4}) *[xX*] *)?(?P<speed>\d{1,7}(\.\d{1,6})?) *"
    r"(?P<unit>[Gg]b/s|[Gg]bps|[Gg]bit/s|GB/s|GBps)?(/(?P<of>gpu|node))?",
    re.ASCII,
)
_WATTS = re.compile(r"(?P<watts>\d{1,5}(\.\d{1,3})?) *((?P<kilo>k)?W)?", re.ASCII)
_PRICE = re.compile(
    r"(?P<before>[$€£]|[A-Za-z]{3})? *(?P<money>\d{1,7}(\.\d{1,6})?) *(?P<after>[$€£]|[A-Za-z]{3})?"
    r"(/(gpu|h|hour|gpu-hour|gpu/h))?",
    re.ASCII,
)
_CURRENCIES = {"$": "USD", "€": "EUR", "£": "GBP"}
BITS_OF_BYTE = 8
FAILING = {
    "mtbf_node": "mtbf_node_days",
    "restart": "restart_minutes",
    "checkpoint": "checkpoint_gb_per_s",
    "save": "save",
    "spare_nodes": "spare_nodes",
    "repair": "repair_hours",
}
"""Options with their fields of `FailureSpec`."""


def machines_stated(
    measured: Measured,
    *,
    cluster: str | None,
    nodes: int | None,
    gpus: int | None,
    gpu: str | None,
    **stated: Any,  # noqa: ANN401 (as `with_stated`)
) -> tuple[ClusterSpec, Measured]:
    """The cluster that the options describe, and what was measured of it.

    Raises:
        PlanError: As `machines_of`, options that contradict each other, or no GPU to be found.
    """
    text = cluster_text(cluster, nodes, gpus, gpu)
    machines, whole = machines_of(this_machine() if text is None else text, measured)
    return with_stated(machines, **stated), whole


def with_stated(
    cluster: ClusterSpec,
    *,
    nic: str | None,
    power_limit: str | None,
    price: str | None = None,
    **failing: object,
) -> ClusterSpec:
    """The cluster with what options state of it.

    Raises:
        PlanError: As `with_nic` and the others.
    """
    if nic is not None:
        cluster = with_nic(cluster, nic)
    if power_limit is not None:
        cluster = with_power_limit(cluster, power_limit)
    if price is not None:
        cluster = with_price(cluster, price)
    return with_failures(cluster, failing)


def cluster_text(
    cluster: str | None, nodes: int | None, gpus: int | None, gpu: str | None
) -> str | None:
    """`--nodes`, `--gpus` and `--gpu` as a cluster's text; null: none of them is given.

    Raises:
        UsageError: A cluster is named as well, or there is no GPU or no count.
    """
    counted = {"--nodes": nodes, "--gpus": gpus, "--gpu": gpu}
    given = [name for name, value in counted.items() if value is not None]
    if cluster is not None and given:
        raise click.UsageError(f"--cluster and {given[0]} both state the cluster: give one")
    if not given:
        return cluster
    if gpu is None or (nodes is None and gpus is None):
        missing = "--gpu" if gpu is None else "--gpus"
        raise click.UsageError(f"{given[0]} needs {missing}: write {COUNTED}")
    machine = machine_named(gpu)
    if machine is not None:
        raise click.UsageError(
            f"--gpu {shortened(gpu)}: that is a machine: write --cluster {nodes or 1}x{machine}"
        )
    name = gpu_intended(gpu)
    if nodes is None:
        return f"{gpus}x{name}"
    how = "with --nodes, --gpus are those of each node"
    if gpus is None:
        gpus, how = catalog.gpu(name).gpus_per_node, "the usual size; --gpus sets another"
    remark(f"{nodes} nodes of {gpus} {name}: {how}")
    return f"{nodes}x{gpus}:{name}"


def this_machine() -> str:
    """The GPUs that are visible here, as a cluster's text; prints what was found.

    Raises:
        SpecError: There are none, different ones, or ones the catalog does not have.
    """
    found = visible_gpus()
    if found is None:
        raise SpecError(
            f"{NO_GPU} (nvidia-smi, rocm-smi): give where it is trained with --cluster 8x8:h100, "
            f"64xh100 or 2xp5.48xlarge, with {COUNTED}, or with a file; `plan profile` measures "
            "this machine, with a GPU or without, and its file is a cluster"
        )
    kinds = sorted(set(found.names))
    if len(kinds) > 1:
        raise SpecError(
            f"this machine has mixed GPUs ({', '.join(kinds)}): name one, as --gpus 4 --gpu a100"
        )
    name = catalog.gpu_named(kinds[0])
    if name is None:
        raise SpecError(
            f"this machine's {kinds[0]!r} is not in the catalog: `plan profile --output "
            "machine.json` measures it, then give --cluster machine.json"
        )
    text = f"1x{len(found.names)}:{name}"
    remark(f"no --cluster: this machine, {text} ({found.tool}: {len(found.names)} x {kinds[0]})")
    return text


def with_nic(cluster: ClusterSpec, text: str) -> ClusterSpec:
    """The cluster with these adapters in every node; prints how they were read.

    Raises:
        SpecError: The text describes none, or links between the nodes were measured.
    """
    if cluster.links is not None:
        raise SpecError(
            "--nic: the links between these nodes were measured: leave the option out, or name the "
            "cluster instead of its profile"
        )
    nics = {group: _nic(text, group) for group in cluster.groups}
    for group, nic in nics.items():
        share = nic.per_node * nic.gb_per_s / group.gpus_per_node
        stated = "" if group.nic is None else f", instead of {_adapters(group.nic)}"
        remark(f"--nic: {_adapters(nic)} in a node, {share:.3g} GB/s for each GPU{stated}")
    groups = tuple(group.model_copy(update={"nic": nics[group]}) for group in cluster.groups)
    return cluster.model_copy(update={"groups": groups})


def _adapters(nic: NicSpec) -> str:
    kind = f" {nic.transport}" if nic.transport else ""
    return f"{nic.per_node} x {nic.gb_per_s * BITS_OF_BYTE:g} Gb/s{kind}"


def _nic(text: str, group: NodeGroup) -> NicSpec:
    match = _NIC.fullmatch(text.strip())
    if match is None or not float(match["speed"]) or match["count"] in ("0", "00"):
        raise SpecError(f"--nic {shortened(text)!r} is no network: {NIC_FORMS}")
    if match["count"] is not None and match["of"] is not None:
        raise SpecError(f"--nic {shortened(text)!r} counts twice: {NIC_FORMS}")
    in_bytes = (match["unit"] or "").startswith("GB")
    gb_per_s = float(match["speed"]) / (1 if in_bytes else BITS_OF_BYTE)
    per_node = 1 if match["of"] == "node" else int(match["count"] or group.gpus_per_node)
    if per_node > MOST_GPUS_PER_NODE:
        raise SpecError(f"--nic {shortened(text)!r}: at most {MOST_GPUS_PER_NODE} adapters a node")
    transport = group.nic.transport if group.nic else None
    return NicSpec(per_node=per_node, gb_per_s=gb_per_s, transport=transport)


def with_power_limit(cluster: ClusterSpec, text: str) -> ClusterSpec:
    """The cluster with this limit of the board power of every GPU.

    Raises:
        SpecError: The text is no power.
    """
    match = _WATTS.fullmatch(text.strip())
    if match is None or not float(match["watts"]):
        raise SpecError(f"--power-limit {shortened(text)!r} is no power: write watts, such as 500W")
    watts = float(match["watts"]) * (1000 if match["kilo"] else 1)
    groups = tuple(group.model_copy(update={"power_limit_w": watts}) for group in cluster.groups)
    return cluster.model_copy(update={"groups": groups})


def with_price(cluster: ClusterSpec, text: str) -> ClusterSpec:
    """The cluster with this price of a GPU for an hour; prints a line where it replaces another.

    Raises:
        SpecError: The text is no price.
    """
    match = _PRICE.fullmatch(text.strip())
    if match is None or (match["before"] and match["after"]):
        raise SpecError(f"--price {shortened(text)!r} is no price: {PRICE_FORMS}")
    money, sign = float(match["money"]), match["before"] or match["after"]
    if not money:
        raise SpecError("--price 0: must be above 0; without a price no money is stated")
    currency = _CURRENCIES.get(sign, sign.upper()) if sign else cluster.currency
    stated = {group.price_per_gpu_hour for group in cluster.groups} - {None}
    if stated:
        before = " and ".join(f"{one:g}" for one in sorted(filter(None, stated))) or "0"
        remark(f"--price: {money:g} {currency}, instead of {before} {cluster.currency}")
    groups = tuple(
        group.model_copy(update={"price_per_gpu_hour": money}) for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups, "currency": currency})


def stated_of(**options: Any) -> Callable[[ClusterSpec], ClusterSpec]:  # noqa: ANN401 (as above)
    """`with_stated` of the options."""
    return partial(with_stated, **options)


def with_failures(cluster: ClusterSpec, options: Mapping[str, object]) -> ClusterSpec:
    """The cluster with what options state of failures, the rest as its file has it.

    Raises:
        UsageError: Options state what a failure takes, and none how often one is.
        SpecError: What a kind of save needs is not stated.
    """
    stated = {FAILING[name]: value for name, value in options.items() if value is not None}
    if not stated:
        return cluster
    if stated.get("mtbf_node_days") == parameters.PUBLISHED:
        stated["mtbf_node_days"] = _published_days(cluster)
    known = cluster.failures.model_dump() if cluster.failures else {}
    if "mtbf_node_days" not in known | stated:
        given = next(name for name in options if options[name] is not None).replace("_", "-")
        raise click.UsageError(
            f"--{given} states what a failure takes, and nothing states how often a node fails: "
            "give --mtbf-node 400d"
        )
    try:
        failures = FailureSpec.model_validate(known | stated)
    except ValidationError as error:
        raise SpecError(f"failures: {first_complaint(error).text}") from None
    return cluster.model_copy(update={"failures": failures})


def _published_days(cluster: ClusterSpec) -> float:
    """Days between failures of the mean node, by published runs; prints which.

    Raises:
        SpecError: None is known on GPUs of a group.
    """
    rate = 0.0
    for group in cluster.groups:
        known = catalog.device(group).mtbf_node_days
        if known is None:
            names = (name for name in catalog.gpu_names() if catalog.gpu(name).mtbf_node_days)
            raise SpecError(
                f"--mtbf-node {parameters.PUBLISHED}: no published run states how often nodes of "
                f"{group.gpu} fail, one does of {' and '.join(names)}: give a time, such as 400d"
            )
        remark(f"--mtbf-node: {known.value:g} days, {group.gpu}: {known.source}")
        rate += group.num_nodes / known.value
    return cluster.num_nodes / rate


def nothing_here() -> str:
    """Why a cluster must be named: empty where this machine has GPUs of its own."""
    return "" if visible_gpus() else NO_GPU
