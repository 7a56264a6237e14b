"""OpenAI's dialect over HTTP."""
