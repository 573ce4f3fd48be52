#!/usr/bin/env bash
# Judge a launch script, and write the corrected one into ./out.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p out/fixed

plan check train.sbatch --write out/fixed/run.sh --force
