"""The machine as it is stated: GPUs, nodes, network cards, hosts, drives, links. No formulas."""
