"""``python -m perfgate``."""

from perfgate.cli.start import main

main()
