#!/usr/bin/env bash
# Find the fastest layout, compare it with a common one, write launch scripts into ./out.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p out

plan search --model llama3-70b --cluster cluster.yaml \
  --global-batch-size 128 --seq-length 8192 --tokens 100B \
  --baseline tp=8,pp=4,vpp=2,sequence_parallel=true,recompute_modules=core_attn \
  --output out/plan.json

plan export out/plan.json --launcher torchrun --output-dir out/torchrun
plan export out/plan.json --launcher slurm --output-dir out/slurm
