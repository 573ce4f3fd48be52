"""The feed-forward part of one layer: dense MLP, and experts with their router and dispatch."""
