"""The gate: run documents and a policy in, a decision document out."""
