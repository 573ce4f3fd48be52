"""Megatron Core, the base of three runtimes: traits, rules, options, features, by file and line."""
