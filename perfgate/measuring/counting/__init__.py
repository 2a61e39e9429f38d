"""Count the operators that single calls dispatch, inside the worker."""
