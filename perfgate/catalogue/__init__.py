"""perfgate's checklist as data: steps, metrics, limits, rules, and their words in two
languages.
"""
