"""What a model holds and computes: exact parameters, model FLOPs, and the families that are read.

`families` turns a Hugging Face `config.json` into a `ModelSpec`; `params` counts to the digit,
`flops` counts what MFU counts.
"""
