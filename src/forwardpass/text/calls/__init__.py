"""Calls of tools: how a model writes them, told from its chat template, and read back."""
