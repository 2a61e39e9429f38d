"""Documents into rows: the measurements of base and head, looked up, validated and
paired.
"""
