"""What is planned for: a `Job` is a model, a training and a cluster on a runtime."""
