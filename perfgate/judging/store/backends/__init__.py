"""One module per kind of store; each has ``accepts(location)`` and
``open_backend(location, place)``.
"""
