"""Turns of sides: order, budget, looks."""
