"""From what was noticed to what to try: ranked suggestions with their evidence, gain and command."""
