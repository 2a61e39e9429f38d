"""Profiles of a job: sampled Python stacks and recorded operators."""
