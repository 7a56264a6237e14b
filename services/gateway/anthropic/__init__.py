"""Anthropic's dialect over HTTP."""
