"""The GPUs and hosts this project knows and the constants of its formulas, each with its source.

alongside: a file or folder next to the module of a plug-in.
constants: the values of all constants of the formulas.
device: numbers of the GPU of a node group, its own or those here.
evidence_of: what products, attention and collectives of a GPU of the catalog rest on.
fitted: what was fitted on measurements of one GPU; empty where nothing was.
fitted_constants: every constant of the formulas with its prior and its source.
gpu: datasheet of one GPU.
gpu_named: the catalog's name of a GPU in another spelling, or as its driver calls it.
gpu_names: names of all GPUs of the catalog, in alphabetical order.
host: one host of the catalog.
host_of: the host of a node group.
hosts: every host of the catalog by name.
intervals: half-widths of step times.
LayoutSpreads: those of layouts and trials.
plugged_gpus: GPUs of plug-ins, and which plug-in each is from.
plugged_hosts: hosts of plug-ins, and which plug-in each is from.
products_fit: name of the fit of linear layers in training.
published_runs: all of them, in the order of their records.
Release: one release of Megatron Core, and what its layers of experts take of the host.
release_of: the release of that name, or the newest.
SourcedDrives: drives of a host of the catalog.
SourcedHost: one host of the catalog.
spreads: how far machines, layouts and trials are from the model.
stand_in: GPU whose fitted constants are used where `name` has none of its own.
sustained_fits: precisions whose sustained factor a precision takes.
"""

from trainplan.costmodel.catalog.entries import (
    SourcedDrives,
    SourcedHost,
    constants,
    device,
    fitted,
    fitted_constants,
    gpu,
    gpu_named,
    gpu_names,
    host,
    host_of,
    hosts,
    intervals,
    plugged_gpus,
    plugged_hosts,
    products_fit,
    spreads,
    stand_in,
    sustained_fits,
)
from trainplan.costmodel.catalog.evidence import evidence_of
from trainplan.costmodel.catalog.plugged import alongside
from trainplan.costmodel.catalog.published import published_runs
from trainplan.costmodel.catalog.releases import Release, release_of
from trainplan.costmodel.catalog.spreads import LayoutSpreads
