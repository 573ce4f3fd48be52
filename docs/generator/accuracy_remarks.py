"""What docs/accuracy.md states in words: known misses, and other tools."""

from __future__ import annotations

SHORT = """\
## Where it falls short

* **Sailor** (GH200, fp32): the time its host needs for launches comes from its own layer profile,
  and small layers over four stages are 11 % slower than priced. Its peaks gave the 4 GiB outside
  the allocator and the absence of dropout masks: the device memory of these runs is fitted, not
  foretold. GPT-Neo with micro batches of 4, the three labels passed that do not fit, takes a tenth
  more than priced: its program drops out of both residual branches, which keeps 1.3 GiB of masks,
  and what is left grows with the weights of a rank, as copies for their reduction would.
* **GPT-OSS-120B** (Megatron-Bridge): priced 2 to 5 % too fast on H100, 11 to 23 % on GB200. What
  Megatron Core runs of it without a fused kernel (biases of experts, clamps, YaRN) is priced, and
  so are windows at the speed of their kernels (cuDNN runs sinks and windows fused, so nothing
  falls back to the unfused core). What is left, 3 to 5 ms a layer of 16k tokens in MXFP8 and in 16
  bits, is on Blackwell alone; one of three equal runs in MXFP8 takes 1.6 times as long as the
  others.
* **HybridEP** recipes of Megatron-Bridge in MXFP8 that state no CUDA graph are read as one
  full-iteration graph with the dispatch overlapped with compute, as their siblings that state it
  measure the same and their recipes have it; recipes in other precisions have none. Without that
  reading they would be priced 34 to 52 % too slow. A graph of the router alone is read as none: a
  layer takes the host 9 ms with it and 10 to 11 without.
* **Releases**: one layout of Megatron-Bridge got 10 % faster a year in the mean (17 to 20 % in most
  groups), over 25 groups from 25.09 to 26.08. A drift fitted on the other models makes a model's
  runs no better (5.3 % in the median, 4.6 % without), and records of other sources state no
  release: left out.
* **Padded experts**: five runs of 25.09 that drop tokens and pad to capacity take the host half of
  what a dropless layer takes, and are priced up to twice too slow. They state too little to be
  scored.
* **MLPerf**: its GPT-3 on up to 10,752 H100 took 106 to 139 ms a step more than priced, at 8 micro
  batches as at 128 and with 16 replicas as with 336, before casts of weights (76 ms there, whose
  configuration keeps them in 16 bits), the slowdown by hidden traffic and the start of a collective
  for each of 12 virtual stages were priced. None of the three is fitted on it: without any MLPerf
  run its median error is 3.8 %. Micro batches of two sequences (v4.0, v4.1) on H100 run 4 to 9 %
  faster than priced; the configuration of v4.0 raises the clocks of the processors
  (`nvidia-smi boost-slider --vboost 1`), which a record does not state. With delayed scaling in fp8
  all replicas agree on the largest values in every pass: steps of GPT-3, Llama-405B and Grok-1 grow
  by 0.9 to 1.4 % a doubling of the GPUs, those in bf16 by 0.3 to 0.7 %. That is not priced.
* **mcore** (continuous integration) runs deterministic kernels: scored, not fitted, and far off.
* **The layout study**: layouts with tp=8 are mostly priced 5 to 16 % too slow, most with tp=4 2 to
  10 % too fast. Three runs of GPT-3.6B (two sequences with tp=4 and tp=8, 64 with tp=8) take 1.3 to
  1.8 times what the model gives; without them the mean error is about 7 %. No rule found covers
  them: the fused softmax takes every shape of the study, fuller GPUs ran well, and on tp=16 a micro
  batch of two sequences takes less time than on tp=8. Nor do more constants order the layouts: 15
  of them and 12 further terms, fitted on these 49 runs alone, give 4.3 %, a rank correlation of
  0.80 and a regret of 4.1 %. GPT-39.1B with tp=4 and pp=8 ran 8 % faster with six sequences than
  with four, though its bubble is half as large again. Runs that differ in the number of micro
  batches alone show that each one costs 0.3 to 1.2 ms a layer more than priced, and all else with
  tp=8 costs 7 to 14 % less, the wider the model the more. A part of the former is known:
  Megatron-DeepSpeed puts two numbers on the GPU in every forward pass of a layer, and the host
  waits for both. As 0.3 ms a pass it takes 0.5 points off the median error of vTrain, 0.07 off the
  error of the study and 0.04 off that of all sources, and orders nothing better: left out. Next to
  tp=1 and tp=8, layouts with tp=4 take a tenth longer on several nodes, but not on one. All-reduces
  among four of eight GPUs at a third of their measured speed would explain it, and so would
  gradients reduced three times slower where a node holds several replicas; with faster products
  either brings error and rank correlation to about 5 % and 0.80. But the first is not seen on one
  node, and by the second GPT-39.1B would run best with pp=8, which took 16 % longer than pp=4.
* **BLOOM**: with tp=8 and two sequences a step takes 8 to 18 % longer than priced, with four 0 to
  13 %, with tp=4 and tp=2 as long as priced. It ran with `CUDA_LAUNCH_BLOCKING=1`, but that is not
  why: tp=4 launches as many kernels a layer, and 10 to 13 ms a layer over some 150 kernels would be
  70 us each. Heads 108 and 150 wide, whose products leave the tensor cores, are priced by the
  datasheet and agree with their neighbours. Heads 128 wide on 12 or 26 heads a rank lost 14 to 21 %
  in one run each and nothing in others, one run with tp=4 and one sequence 28 %.
  BLOOM prints device memory in whole GB and names no rank; equal states and activations differ
  by 4 GiB there (48 and 44 GiB), and one run of micro batches of 2 took 9 GiB more than its twin
  with 4. Nothing of memory was fitted on it.
* **llm-foundry** ran FlashAttention in Triton, the default of its benchmark until 0.7: what is left
  of its long sequences goes as fast at 64 wide as at 128, 100 to 107 TFLOP/s forward and backward
  on A100, 170 to 187 on H100, which FlashAttention-2 nearly doubles.
* **Mist** recomputes single operations, another share on each stage. Memory is priced stage by
  stage, each as the mean of whole layers and of policies around its share; which operations run
  again is in no record, and peaks are off by a twentieth. Of step times only those of equal degrees
  are priced, with the attention core recomputed on all stages.
* **torchtitan at 405B**: read as one micro batch for every pipeline rank, peaks are 5 to 16 % low.
  Hybrid sharding is in no published run here."""

PEERS = """\
## Other tools on the same runs

Mean error of the step time over 109 of the 115 A100 runs of vTrain, bad layouts included, on
which none of these tools was calibrated; each ran with the files it ships or, where it ships none
for the machine, with datasheet numbers in its own template. In brackets: after one factor for all
runs.

| tool | mean error | where its authors calibrated it |
|---|---:|---|
| [calculon](https://github.com/calculon-ai/calculon) | 19.6 % (19.3 %) | 3.6 % on 8 A100 runs |
| [SimuMax](https://github.com/MooreThreads/SimuMax) 1.2 | 26.1 % (13.5 %) | 4.8 % on 24 B200 runs |
| [llm-analysis](https://github.com/cli99/llm-analysis) | 17.7 % (16.2 %) | - |
| 45 % of peak, recomputation counted | 19.2 % (17.4 %) | - |

Ours has fitted these runs; [left out of the fit](#one-source-left-out) it does as the line
`vtrain` there states. These figures of other tools were measured once, by hand. A constant share of
peak looks as good as a model on well-tuned published runs, and cannot order layouts at all. On
the layouts of the four models calculon and SimuMax reach rank correlations of 0.97, 0.66, 0.43
and 0.84 (SimuMax within 0.02) and pick layouts 0, 4.5, 0 and 0.6 % slower than the best;
llm-analysis reaches 0.86, -0.06, -0.44 and -0.04 and picks layouts 19 to 44 % slower."""
