"""What a drafter's folder says, whoever wrote it. Names and shapes are strict both ways, unknown variants refused."""
