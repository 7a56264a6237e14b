"""Closed functions over tensors. Every one gives a row the same bits whatever else is in the call, under its plan."""
