"""Room profiler/bench/inputs."""
