"""``python -m perfgate``."""

from perfgate.cli.main import main

main()
