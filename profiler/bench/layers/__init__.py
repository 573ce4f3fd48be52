"""Room profiler/bench/layers."""
