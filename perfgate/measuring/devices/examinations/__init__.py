"""One module a kind of device: ``examine(host, index)`` says what is wrong with it, without its framework.

A folder of its own beside the backends: a backend may import torch, an examination must answer where torch cannot be
imported. A kind without a module here, such as the CPU, has nothing to examine.
"""
