"""What is exported for transformers trains on two processes of a CPU as on one.

Beside `test_exports_start.py`: what Accelerate shards on GPUs alone, experts, and bf16.
"""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

pytestmark = pytest.mark.runtime

SIZES = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DENSE = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES}
SPARSE = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    **SIZES,
}
SAMPLES = {"micro_batch_size": 2, "dp": 2, "zero_stage": 3}
WIDE, MIXED = {"precision": "tf32"}, {"precision": "bf16"}
RUNNER = Path(__file__).parent / "checkers" / "ranks_of_cpus.py"
PRINTED = re.compile(r"'loss': '([\d.]+)', 'grad_norm': '([\d.]+)'")
CASES = {
    "FSDP2 of Accelerate": ("llama3-8b", SAMPLES, WIDE, True, DENSE),
    "ZeRO-2 of Accelerate": ("llama3-8b", SAMPLES | {"zero_stage": 2}, WIDE, True, DENSE),
    "expert ranks": ("qwen3-30b-a3b", SAMPLES | {"ep": 2}, WIDE, False, SPARSE),
    "in bf16": ("llama3-8b", SAMPLES, MIXED, True, DENSE),
}


@pytest.fixture(name="packages")
def _packages():
    if "TRANSFORMERS_PATH" not in os.environ:
        pytest.skip("TRANSFORMERS_PATH names no folder with transformers in src")
    return Path(os.environ["TRANSFORMERS_PATH"]) / "src"


def losses(config, sizes, packages, folder, *, ranks=2, as_gpus=False):
    """Loss and norm of the gradients of three steps of an exported script on a small model."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(sizes), "utf-8")
    for file in config.files:
        (folder / file.name).write_text(file.text, "utf-8")
    runner = (str(RUNNER),) if as_gpus else ()
    script = (*runner, "train_transformers.py", "--config", "train.yaml")
    stated = ("--model_name_or_path", ".", "--random_weights", "true", "--data", "random")
    usual = ("--output_dir", "out", "--max_steps", "3", "--max_length", "32", "--use_cpu", "true")
    alike = ("--train_sampling_strategy", "sequential", "--save_strategy", "no", "--tf32", "false")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(ranks), *script, *stated, *usual, *alike),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [float(one) for pair in PRINTED.findall(ran.stdout) for one in pair]


@pytest.fixture(scope="module", name="of_one")
def _of_one(tmp_path_factory, make_job):
    """Those of one process, by the name of the model."""

    @cache
    def of(model, packages):
        job = make_job(model, "1x1:h100-sxm", 8, **WIDE)
        job = job.model_copy(update={"runtime": "transformers"})
        config = EXPORTERS["transformers"](job, Layout(micro_batch_size=2, zero_stage=0))
        sizes = {case[0]: case[-1] for case in CASES.values()}[model]
        return losses(config, sizes, packages, tmp_path_factory.mktemp("one") / "run", ranks=1)

    return of


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_losses_of_one(make_job, packages, of_one, tmp_path, name):
    model, layout, training, as_gpus, sizes = CASES[name]
    job = make_job(model, "1x2:h100-sxm", 8, **training)
    job = job.model_copy(update={"runtime": "transformers"})
    config = EXPORTERS["transformers"](job, Layout(**layout))
    two = losses(config, sizes, packages, tmp_path / "run", as_gpus=as_gpus)
    one = of_one(model, packages)
    assert len(one) == 6
    assert two == pytest.approx(one, rel=0.02 if training is MIXED else 1e-3)
