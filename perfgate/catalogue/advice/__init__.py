"""What to try, as data: about every rule that a step may notice, and about what a change may bring."""
