"""The trusted inputs of a CI job: provenance, the base's policy, required evidence."""
