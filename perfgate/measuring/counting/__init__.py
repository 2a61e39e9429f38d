"""What single calls dispatch, counted inside the worker."""
