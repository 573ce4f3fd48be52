"""The thirty jobs, and what a reader of a guide knows of one."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware.cluster import NicSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.presets.presets import preset

JOBS = Path(__file__).parent / "jobs.toml"


@dataclass(frozen=True)
class Facts:
    """What a thumb rule may ask of a job."""

    job: Job
    billions: float
    """Parameters."""
    experts: bool
    gpus: int
    node: int
    """GPUs of a node."""
    domain: int
    """GPUs that share one scale-up link (NVLink, xGMI); 1 where GPUs meet over PCI Express."""
    memory_gib: float
    """Of a GPU."""
    network_gb_per_s: float
    """Of one GPU towards other nodes."""

    @property
    def seq_length(self) -> int:
        """Tokens of a sequence."""
        return self.job.training.seq_length

    @property
    def ethernet(self) -> bool:
        """Is the network a limited one: 100 Gb/s or less for a whole node of several?"""
        return self.gpus > self.node and self.network_gb_per_s * self.node <= 12.5


def facts_of(job: Job) -> Facts:
    """What the guides' tables are entered with."""
    (group,) = job.cluster.groups
    device = catalog.device(group)
    fast = not device.link.startswith("PCI")
    rate = group.nic.gb_per_s * group.nic.per_node / group.gpus_per_node if group.nic else None
    return Facts(
        job=job,
        billions=num_parameters(job.model) / 1e9,
        experts=job.model.moe is not None,
        gpus=job.cluster.num_gpus,
        node=group.gpus_per_node,
        domain=min(job.cluster.num_gpus, group.domain_gpus(device)) if fast else 1,
        memory_gib=group.memory_gib or device.memory_gib.value,
        network_gb_per_s=rate or (device.nic_gb_per_s.value if device.nic_gb_per_s else 0.0),
    )


@cache
def jobs() -> dict[str, Job]:
    """By name, of no runtime yet."""
    listed = tomllib.loads(JOBS.read_text(encoding="utf-8"))["job"]
    return {one["name"]: _job(one) for one in listed}


def _job(stated: dict[str, object]) -> Job:
    cluster = parse_cluster(str(stated["cluster"]))
    if "nic" in stated:
        nic = NicSpec.model_validate(stated["nic"])
        groups = tuple(group.model_copy(update={"nic": nic}) for group in cluster.groups)
        cluster = cluster.model_copy(update={"groups": groups})
    sizes = {name: stated[name] for name in ("seq_length", "global_batch_size")}
    training = TrainingSpec.model_validate(sizes)
    return Job(model=preset(str(stated["model"])), training=training, cluster=cluster)
