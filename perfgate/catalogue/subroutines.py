"""What the times of parts of a call are called: ``op.aten::mm``, ``module.Encoder.layers.*``, ``function.model.py:attend``."""

from __future__ import annotations

OPERATOR_TIME, MODULE_TIME, FUNCTION_TIME = "op.", "module.", "function."
PYTHON_TIMES = (MODULE_TIME, FUNCTION_TIME)
SUBROUTINE_TIMES = (OPERATOR_TIME, *PYTHON_TIMES)
