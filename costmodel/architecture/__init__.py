"""The model as it is stated: layers, mixers, experts, tower, and what of it is trained. No formulas."""
