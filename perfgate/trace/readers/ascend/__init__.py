"""The files of Ascend's profilers, each read on its own; the readers beside this folder put them together."""
