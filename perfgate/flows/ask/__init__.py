"""Questions that an assistant asks about stored runs and recordings: one set for `perfgate ask`, the REST API and MCP."""
