"""What makes a row's bits independent of its company: plans found by measurement, and a name for the result."""
