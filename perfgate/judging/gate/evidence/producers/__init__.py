"""The producers of numbers: each module has ``numbers(evidence, rules)``, which yields
rows.

The rows of a decision are in the order of the modules' names.
"""
