"""A kind of evidence that the gate does not know, as a producer of numbers."""
