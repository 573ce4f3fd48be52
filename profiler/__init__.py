"""Measurements of a machine, and what other programs measured.

`launch` starts processes that run the items of `bench` and write a `journal`; `fit` makes a profile
of it; `importers` and `logs` read files of other programs. torch is imported inside functions
of `bench`, `host` and `launch` alone.
"""
