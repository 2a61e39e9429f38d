"""Where perfgate's own code lies."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
