"""What runs inside a worker process. Only here may torch be imported, and only when it is needed."""
