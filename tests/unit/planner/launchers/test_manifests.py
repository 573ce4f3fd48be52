"""Launches inside manifests are read with what the manifest asks for."""

import pytest

from trainplan.costmodel.base import PlanError
from trainplan.planner.formats import document_of
from trainplan.planner.launchers import launches_of_manifest

TRAIN = "pretrain_gpt.py --num-layers 24"
GPUS = "resources: {limits: {nvidia.com/gpu: 8}}"


def read(text, file="job.yaml", settings=None):
    return launches_of_manifest(
        document_of(text, ".yaml"), text, file, settings or {}, lambda name: None
    )


def counts(launch):
    words = (launch.nodes, launch.gpus_per_node, launch.ranks, launch.gpu)
    return tuple(word and word.text for word in words)


def pytorchjob(command, master=1, workers=3, each='nprocPerNode: "8"', more=""):
    replicas = "".join(
        f"""
    {kind}:
      replicas: {count}
      template:
        spec:
          {more}
          containers:
          - name: pytorch
            image: img
            env: [{{name: TP, value: "2"}}, {{name: EMPTY, value: ""}}]
            {GPUS}
            {command}"""
        for kind, count in (("Master", master), ("Worker", workers))
    )
    return f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  {each}
  pytorchReplicaSpecs:{replicas}
"""


def test_a_pytorchjob_has_the_nodes_of_master_and_workers():
    launch = read(pytorchjob(f"command: [torchrun, {', '.join(TRAIN.split())}, --tp, $(TP)]"))[0]
    assert counts(launch) == ("4", "8", None, None)
    assert launch.arguments[-1].text == "2"
    assert launch.environment["TP"].text == "2"


def test_ranks_are_the_gpus_of_a_node_where_the_operator_counts_them():
    launch = read(pytorchjob(f'command: ["torchrun", "{TRAIN}"]', each="x: 1", workers=1))[0]
    assert counts(launch)[:2] == ("2", "8")


def test_text_for_a_shell_is_read_with_its_lines_and_variables_of_the_operator():
    block = f"""command: [bash, -lc]
            args:
            - |
              set -e
              torchrun --nnodes $PET_NNODES --nproc_per_node $PET_NPROC_PER_NODE \\
                --node_rank $RANK {TRAIN} --tp $TP
"""
    text = pytorchjob(block, workers=0)
    launch = read(text)[0]
    assert counts(launch)[:2] == ("1", "8")
    line = launch.program.place.line
    assert TRAIN in text.split("\n")[line - 1]


def test_a_script_of_a_config_map_is_read():
    text = pytorchjob("command: [bash, /scripts/train.sh]") + (
        "---\napiVersion: v1\nkind: ConfigMap\ndata:\n  train.sh: |\n"
        f"    torchrun --nnodes $WORLD_SIZE --nproc_per_node 8 {TRAIN}\n"
    )
    (launch, *_) = read(text.replace('nprocPerNode: "8"', "x: 1"))
    assert counts(launch)[:2] == ("4", "8")


@pytest.mark.parametrize(
    ("label", "gpu"),
    [
        ("nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("cloud.google.com/gke-accelerator: nvidia-tesla-a100", "a100-sxm-40gb"),
        ("node.kubernetes.io/instance-type: ml.p5.48xlarge", "ml.p5.48xlarge"),
        ("disk: ssd", None),
    ],
)
def test_the_gpu_is_that_of_the_nodes_it_may_run_on(label, gpu):
    more = f"nodeSelector: {{{label}}}"
    assert counts(read(pytorchjob(f'command: ["torchrun", "{TRAIN}"]', more=more))[0])[3] == gpu
    more = (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        f"{{nodeSelectorTerms: [{{matchExpressions: [{{key: {label.split(': ')[0]}, operator: In, "
        f"values: [{label.split(': ')[1]}]}}]}}]}}}}}}"
    )
    assert counts(read(pytorchjob(f'command: ["torchrun", "{TRAIN}"]', more=more))[0])[3] == gpu


def test_other_devices_are_never_taken_for_those_of_nvidia():
    text = pytorchjob(f'command: ["torchrun", "{TRAIN}"]').replace("nvidia.com/gpu", "amd.com/gpu")
    assert counts(read(text)[0])[3] == "amd.com/gpu"


def test_a_trainjob_counts_its_nodes_and_processes():
    text = f"""apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  trainer:
    numNodes: 2
    numProcPerNode: 8
    resourcesPerNode: {{limits: {{nvidia.com/gpu: 8}}}}
    command: [torchrun, {", ".join(TRAIN.split())}]
"""
    assert counts(read(text)[0])[:2] == ("2", "8")


def test_a_plain_job_sets_no_variables_of_operators():
    text = f"""apiVersion: batch/v1
kind: Job
spec:
  parallelism: 2
  template:
    spec:
      containers:
      - image: img
        {GPUS}
        command: [torchrun, {", ".join(TRAIN.split())}]
"""
    assert counts(read(text)[0])[:2] == (None, None)


def test_a_jobset_and_a_volcano_job_multiply_what_runs():
    jobset = f"""apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        parallelism: 2
        template:
          spec:
            containers:
            - image: img
              {GPUS}
              command: [bash, -c, "torchrun --nnodes $N --nproc_per_node gpu {TRAIN}"]
"""
    assert counts(read(jobset)[0])[:2] == ("4", "8")
    volcano = f"""apiVersion: batch.volcano.sh/v1alpha1
kind: Job
spec:
  tasks:
  - {{replicas: 4, name: worker, template: {{spec: {{containers: [{{image: i, {GPUS},
      command: [sh, -c, "torchrun --nnodes $VC_WORKER_NUM --nproc_per_node 8 {TRAIN}"]}}]}}}}}}
"""
    assert counts(read(volcano)[0])[:2] == ("4", "8")


def test_an_mpijob_is_started_by_its_launcher_and_runs_on_its_workers():
    text = f"""apiVersion: kubeflow.org/v2beta1
kind: MPIJob
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher: {{replicas: 1, template: {{spec: {{containers: [{{image: i,
      command: [mpirun, -np, "32", python, {", ".join(TRAIN.split())}]}}]}}}}}}
    Worker: {{replicas: 4, template: {{spec: {{containers: [{{image: i, {GPUS}}}]}}}}}}
"""
    assert counts(read(text)[0])[:3] == ("4", None, "32")


def test_a_rayjob_is_its_entry_point():
    text = f"""apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: torchrun --nnodes 2 --nproc_per_node 8 {TRAIN}
  rayClusterSpec:
    workerGroupSpecs:
    - {{replicas: 2, template: {{spec: {{containers: [{{image: i, {GPUS}}}]}}}}}}
"""
    assert counts(read(text)[0])[:2] == ("2", "8")


@pytest.mark.parametrize(
    ("accelerators", "gpu"),
    [
        ("H100:8", "h100-sxm"),
        ("{A100-80GB: 8}", "a100-sxm-80gb"),
        ("A100:8", "a100-sxm-40gb"),
        ("XYZ:8", "XYZ"),
    ],
)
def test_a_task_of_skypilot(accelerators, gpu):
    text = f"""num_nodes: 2
resources: {{accelerators: {accelerators}}}
envs: {{TP: 2}}
run: |
  torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node $SKYPILOT_NUM_GPUS_PER_NODE {TRAIN}
"""
    assert counts(read(text)[0]) == ("2", "8", None, gpu)


def test_other_tasks():
    dstack = f"""type: task
nodes: 2
commands:
- pip install x
- torchrun --nnodes $DSTACK_NODES_NUM --nproc_per_node $DSTACK_GPUS_PER_NODE {TRAIN}
resources: {{gpu: "H100:8"}}
"""
    assert counts(read(dstack)[0]) == ("2", "8", None, "h100-sxm")
    azure = f"""command: python {TRAIN}
distribution: {{type: pytorch, process_count_per_instance: 8}}
resources: {{instance_count: 2, instance_type: Standard_ND96isr_H100_v5}}
"""
    assert counts(read(azure)[0]) == (None, None, "16", "Standard_ND96isr_H100_v5")


def test_values_of_a_chart_are_read_where_they_hold_a_command():
    text = f"workload:\n  run: |\n    torchrun --nproc_per_node 8 {TRAIN}\n"
    assert counts(read(text, "a/values.yaml")[0])[:2] == (None, "8")
    assert counts(read(text + "  gpus: 8\n", "a.yaml")[0])[:2] == (None, "8")
    assert read("queue: a\nworkload: {gpus: 64, command: sleep}\n", "values.yaml") == ()


@pytest.mark.parametrize(
    "text",
    ["a: 1", "run: {name: x}\nresources: 1", "", "[1, 2]", "apiVersion: v1\nkind: ConfigMap\n"],
)
def test_other_files_are_none(text):
    assert read(text) == ()


def test_a_workload_whose_command_trains_nothing_is_named():
    assert read(pytorchjob("tty: true")) == ()
    with pytest.raises(PlanError, match="is a PyTorchJob of Kubernetes, and its command"):
        read(pytorchjob("command: [sleep, infinity]"))


def test_counts_of_any_kind_stop_nothing():
    odd = ("-1", "[1]", "null", "1e9", "1.5", "true", "99999999999999", '"x"')
    for one in odd:
        text = pytorchjob(
            f'command: ["torchrun", "{TRAIN}"]', master=one, each=f"nprocPerNode: {one}"
        )
        assert read(text)
    text = "apiVersion: v1\nkind: Job\nspec: " + "{spec: " * 200 + "1" + "}" * 200
    assert read(text) == ()


@pytest.mark.parametrize("kind", ["apiVersion: v1\nkind: Job\n", "workload: {gpus: 8}\n"])
def test_aliases_of_aliases_end_soon(kind):
    lines = (f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    assert read(f"{kind}a0: &a0 [x, x]\n{''.join(lines)}spec: *a11\n") == ()
    assert read(f"{kind}spec: &s\n  spec: *s\n") == ()


def test_a_template_of_master_and_workers_may_stand_once():
    text = pytorchjob(f'command: ["torchrun", "{TRAIN}"]')
    one, _ = text.split("    Worker:")
    shared = one.replace("      template:\n", "      template: &pod\n")
    text = f"{shared}    Worker:\n      replicas: 3\n      template: *pod\n"
    assert counts(read(text)[0])[:2] == ("4", "8")


@pytest.mark.parametrize("line", ["replicas: 3", "nvidia.com/gpu: 8", "kind: PyTorchJob"])
def test_what_a_line_states_makes_nothing_illegal_without_it(line):
    command = f"torchrun --nnodes 4 --nproc_per_node 8 {TRAIN}"
    text = pytorchjob(f'command: ["bash", "-c", "{command}"]').replace(
        "{limits: {nvidia.com/gpu: 8}}",
        "\n              limits:\n                nvidia.com/gpu: 8",
    )
    assert not read(text)[0].problems
    before, _, behind = text.rpartition(line) if line[0] == "n" else text.partition(line)
    for launch in read(before + behind):
        assert not [one for one in launch.problems if one.verdict == "illegal"]


def test_nodes_that_a_task_does_not_state_are_a_default():
    text = f"""resources: {{accelerators: "H100:8"}}
run: torchrun --nnodes $SKYPILOT_NUM_NODES --nproc_per_node 8 {TRAIN}
"""
    (launch,) = read(text)
    assert (launch.nodes.text, launch.nodes.fallback) == ("1", True)
    (launch,) = read(text.replace("$SKYPILOT_NUM_NODES", "4"))
    assert not launch.problems


def test_a_template_is_named():
    with pytest.raises(PlanError, match="is a template"):
        read("kind: Job\n{{- range .Values.env }}\n  - {{ . }}\n{{- end }}\n")


def test_the_branch_of_the_first_node_is_read():
    text = f"""num_nodes: 2
run: |
  if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
    torchrun --nproc_per_node 8 {TRAIN}
  else
    sleep 10
  fi
"""
    assert counts(read(text)[0])[:2] == (None, "8")
