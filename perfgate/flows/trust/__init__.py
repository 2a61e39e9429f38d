"""What a CI job may believe: provenance, the base's policy, required evidence."""
