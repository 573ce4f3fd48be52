"""Manifests of Kubeflow: a TrainJob of the Trainer v2, or a PyTorchJob of the Training Operator v1.

Source of both schemas: kubeflow/trainer @8c0f5059b `manifests/base/crds`,
trainer.kubeflow.org_trainjobs.yaml, and, before v1 left that repository (7858371b4),
kubeflow.org_pytorchjobs.yaml. What the operators set: `pkg/constants/constants.go` (PET_NNODES and
siblings, which torchrun reads) and `pkg/controller.v1/pytorch/envvar.go` (MASTER_ADDR and others).
"""

from collections.abc import Mapping

import yaml

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.launchers.script import (
    Launcher,
    gpus_per_node,
    head,
    manifest_script,
    no_order,
)

NAME = "trainplan"
RETRIES = 3
"""Of a job whose pods fail, where operations are written. Source: assumed, as those of torchrun."""
IMAGE = "IMAGE"
"""Stands where the user's own container image goes: Kubernetes refuses capitals in one."""
MANIFEST = "job.yaml"
KUBECTL = "kubectl create -f"
GPU_RESOURCE = {"mi": "amd.com/gpu"}
"""Resource of the device plugin, by the first letters of a GPU's name; others are NVIDIA's."""
RENDEZVOUS = (
    '--node_rank "$PET_NODE_RANK"',
    '--master_addr "${PET_MASTER_ADDR:-$MASTER_ADDR}"',
    '--master_port "${PET_MASTER_PORT:-$MASTER_PORT}"',
)


def trainjob(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """A TrainJob on the runtime `torch-distributed` that the Trainer installs."""
    nodes, gpus = cluster.num_nodes, gpus_per_node(cluster)
    trainer = {
        "image": IMAGE,
        "numNodes": nodes,
        "numProcPerNode": gpus,
        "resourcesPerNode": _resources(cluster, gpus),
        "env": _environment(config),
        "command": ["bash", "-c"],
        "args": [_text(config, cluster, order)],
    }
    return _manifest(
        config,
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"generateName": f"{NAME}-"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        },
    )


def pytorchjob(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """A PyTorchJob: one master, all other nodes workers."""
    nodes, gpus = cluster.num_nodes, gpus_per_node(cluster)
    container = {
        "name": "pytorch",
        "image": IMAGE,
        "resources": _resources(cluster, gpus),
        "env": _environment(config),
        "command": ["bash", "-c"],
        "args": [_text(config, cluster, order)],
    }
    template = {"spec": {"containers": [container]}}
    counts = {"Master": 1, "Worker": nodes - 1}
    replicas = {
        kind: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
        for kind, count in counts.items()
        if count
    }
    return _manifest(
        config,
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"generateName": f"{NAME}-"},
            "spec": {
                "nprocPerNode": str(gpus),
                **_retries(config),
                "pytorchReplicaSpecs": replicas,
            },
        },
    )


def _retries(config: LaunchConfig) -> dict[str, object]:
    return {"runPolicy": {"backoffLimit": RETRIES}} if config.operations else {}


def _resources(cluster: ClusterSpec, gpus: int) -> dict[str, object]:
    name = cluster.groups[0].gpu
    resource = next((r for p, r in GPU_RESOURCE.items() if name.startswith(p)), "nvidia.com/gpu")
    return {"limits": {resource: gpus}}


def _environment(config: LaunchConfig) -> list[dict[str, str]]:
    """What the user must fill in; the script stops with a sentence where one is empty."""
    return [{"name": variable.name, "value": ""} for variable in config.required_environment]


def _text(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...]) -> str:
    no_order(order, "the operator")
    return manifest_script(config, RENDEZVOUS, cluster)


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and shared parts in full."""

    def ignore_aliases(self, data: object) -> bool:
        """No anchors: a person reads the file."""
        return True


def _block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _block)


def _manifest(config: LaunchConfig, document: Mapping[str, object]) -> str:
    return yaml_file(config, document, f"set the image ({IMAGE}) and the values under env")


def yaml_file(config: LaunchConfig, document: Mapping[str, object], before: str) -> str:
    """A document below a head that says what it starts and what to do before."""
    lines = [*head(config), f"# Before you start it: {before}."]
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return "\n".join(lines) + "\n" + text


TRAINJOB = Launcher(MANIFEST, trainjob, starts=KUBECTL, carries_files=True)
PYTORCHJOB = Launcher(MANIFEST, pytorchjob, starts=KUBECTL, carries_files=True)
