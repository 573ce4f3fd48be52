#!/usr/bin/env bash
# A mixture of experts: the search also chooses expert parallelism and what to recompute.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p out

plan search --model deepseek-v3 --cluster cluster.yaml \
  --global-batch-size 15360 --seq-length 4096 --precision fp8 --tokens 14.8T \
  --output out/plan.json

plan export out/plan.json --launcher slurm --output-dir out/slurm
