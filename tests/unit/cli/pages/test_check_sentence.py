"""The first lines of `plan check`: once, in plain words, with what fills the memory."""

from pathlib import Path

from tests.e2e.command import plan

MAXTEXT = """
base_config: base.yml
model_name: llama2-7b
per_device_batch_size: 2
max_target_length: 4096
ici_tensor_parallelism: 2
ici_fsdp_parallelism: 4
"""


def test_what_is_not_judged_is_reported_once(tmp_path: Path):
    path = tmp_path / "c.yml"
    path.write_text(MAXTEXT)
    answer = plan("check", str(path), "--cluster", "1x8:h100-sxm", "--time-limit", "0.1")
    assert answer.code == 0
    first = " ".join(answer.out.split())
    assert first.lower().count("undecided") <= 2  # the sentence, and its row of the table
    assert "Undecided: undecided" not in first


MOE = """\
#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
MBS=${MBS:-2}
MODEL=(
  --num-layers 48 --hidden-size 2048 --num-attention-heads 16 --seq-length 8192
  --max-position-embeddings 8192 --vocab-size 151936 --tokenizer-type NullTokenizer --swiglu
  --group-query-attention --num-query-groups 4 --disable-bias-linear
  --untie-embeddings-and-output-weights --normalization RMSNorm --position-embedding-type rope
  --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408
  --moe-shared-expert-intermediate-size 2816 --moe-grouped-gemm
  --moe-token-dispatcher-type alltoall
)
srun torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" --mock-data \\
  --pipeline-model-parallel-size 2 --expert-model-parallel-size 8 --use-distributed-optimizer \\
  --micro-batch-size $MBS --global-batch-size 512 --train-iters 10 --lr 1e-4 --bf16
"""


def test_what_fills_the_memory_is_in_the_first_lines_where_it_does_not_fit(tmp_path: Path):
    path = tmp_path / "train.sh"
    path.write_text(MOE)
    answer = plan("check", path, "--time-limit", "0.1")
    assert answer.out.startswith("It does not fit: ")
    head = " ".join(answer.out.partition("\n\nRead")[0].split())
    assert "Tightest in the backward pass of pipeline rank 0, GiB: activations " in head
    read = " ".join(answer.out.split())
    assert "num_experts 64, num_experts_per_tok 6, moe_intermediate_size 1408" in read
    assert "{" not in read


def test_the_chance_to_fit_is_printed_and_a_setting_without_a_variable(tmp_path: Path):
    path = tmp_path / "train.sh"
    path.write_text(MOE)
    answer = plan("check", path, "--set", "MBS=1", "--set", "MBSS=1", "--time-limit", "0.1")
    assert answer.out.startswith("It runs and fits: ")
    assert answer.out.splitlines()[2] == "The GPU is assumed, h100-sxm: --cluster states it"
    assert " of 100), with " in " ".join(answer.out.split("\n\n")[1].split())
    assert "names no MBSS, so it changes nothing: did you mean 'MBS'?" in " ".join(
        answer.err.split()
    )


def test_memory_at_its_edge_is_no_plain_yes(tmp_path: Path):
    path = tmp_path / "train.sh"
    path.write_text(MOE.replace("8192", "8640"))
    answer = plan("check", path, "--set", "MBS=1", "--time-limit", "0.1")
    assert answer.out.startswith("It runs and fits at the edge of memory: ")
    assert "\nAt the edge, fits (" in answer.out
