"""Layers in torch, as they are measured: attention and MLP, experts, norms."""
