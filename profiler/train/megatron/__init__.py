"""megatron-core as it is, on GPUs over NCCL, or on a CPU over gloo with stand-ins for CUDA.

`refused` names what cannot be run, `config` what megatron-core is given, `train` does it.
"""
