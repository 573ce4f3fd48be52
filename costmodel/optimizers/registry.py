"""Optimizers by name: what each keeps of a matrix, and the work of its update.

To add one: write its object, add one line here and its word to the runtimes that have it.
"""

from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.job import Job, OptimizerSpec
from trainplan.costmodel.optimizers.adafactor import ADAFACTOR
from trainplan.costmodel.optimizers.adamw import ADAMW, LION, SGD
from trainplan.costmodel.optimizers.adamw8bit import ADAMW8BIT
from trainplan.costmodel.optimizers.base import Matrix, Multiplied, Optimizer
from trainplan.costmodel.optimizers.low_rank import APOLLO, APOLLO_MINI, GALORE, GALORE8BIT
from trainplan.costmodel.optimizers.muon import DIST_MUON, MUON
from trainplan.costmodel.optimizers.shampoo import SHAMPOO, SOAP
from trainplan.costmodel.plugins import Registry

__all__ = ["OPTIMIZERS", "Matrix", "Multiplied", "Optimizer", "optimizer_of", "updates_by_layer"]

OPTIMIZERS: Registry[Optimizer] = Registry(
    "optimizers",
    {
        one.name: one
        for one in (
            ADAMW,
            ADAMW8BIT,
            ADAFACTOR,
            LION,
            SGD,
            MUON,
            DIST_MUON,
            SOAP,
            SHAMPOO,
            GALORE,
            GALORE8BIT,
            APOLLO,
            APOLLO_MINI,
        )
    },
    Optimizer,
)


def optimizer_of(request: OptimizerSpec) -> Optimizer:
    """The optimizer that is asked for.

    Raises:
        CatalogError: No such optimizer; the message names the nearest.
        SpecError: A setting is missing, or it takes none of that name.
    """
    if request.name not in OPTIMIZERS:
        known = f"known: {', '.join(OPTIMIZERS)}"
        raise unknown_name("optimizer", request.name, OPTIMIZERS, known)
    found = OPTIMIZERS[request.name]
    for setting in OptimizerSpec.SETTINGS:
        stated = getattr(request, setting) is not None
        if setting in found.needs and not stated:
            raise SpecError(
                f"optimizer {request.name} needs a {setting}: write {request.name}:{setting}=256"
            )
        if stated and setting not in found.takes:
            has = f"it takes {' and '.join(found.takes)}" if found.takes else "it takes none"
            raise SpecError(f"optimizer {request.name} has no setting {setting}: {has}")
    return found


def updates_by_layer(job: Job) -> bool:
    """Is a layer updated as soon as its gradients are there, so that no others wait?

    By itself on one GPU; nothing is reduced there. Source: Zhao et al., GaLore, arXiv:2403.03507,
    section 4.3 (per-layer weight updates), and the README of its code: on one GPU only.
    """
    request = job.training.optimizer
    if not optimizer_of(request).by_layer:
        return False
    return request.update == "layer" or (request.update is None and job.cluster.num_gpus == 1)
