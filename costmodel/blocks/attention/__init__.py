"""Attention of one layer: projections, core, context parallelism, key-value heads, latent form."""
