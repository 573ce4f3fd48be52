#!/usr/bin/env bash
# A model and a cluster that no catalog knows.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p out

plan search --model my-model --cluster cluster.yaml \
  --global-batch-size 256 --seq-length 8192 --tokens 300B --output out/plan.json

# The same job with a layout of your own: what does it cost, and why?
plan estimate --model my-model --cluster cluster.yaml \
  --global-batch-size 256 --seq-length 8192 --layout tp=2,micro_batch_size=1,recompute=full

plan export out/plan.json --launcher torchrun --output-dir out/torchrun
