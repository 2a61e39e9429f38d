"""`perfgate upgrade --bisect`: find the package, or the release of one, that makes the workload slower."""
