"""Trainers over transformers, TRL and DeepSpeed: their files and commands as arguments of a script.

One table a trainer in `tables`; sources are there.
"""
