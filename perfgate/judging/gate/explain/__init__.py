"""The causes of comparisons: operators, lines, functions and findings."""
