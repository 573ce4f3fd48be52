"""What limits a plan: what more of a resource saves, and what other rules of it cost.

Each figure has a file: prices of resources, imbalance of experts and lengths of sequences, the
largest model, finer recompute, use of links.
"""
