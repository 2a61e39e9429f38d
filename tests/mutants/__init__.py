"""Change single lines of the gate, the engine and publish, and count how many of these mutants the tests notice.

mutmut and cosmic-ray judge every mutant of a package by one fixed test command, in hours; these few are drawn by a seed and run
only the tests that reach them.
"""
