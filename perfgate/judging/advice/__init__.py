"""From findings to advice: ranked suggestions with their evidence, gain and command."""
