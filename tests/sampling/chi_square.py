"""A bound for a chi-square statistic, without a statistics library."""

Z = 4.75  # of a standard normal: exceeded once in a million


def statistic(seen, expected):
    return sum((s - e) ** 2 / e for s, e in zip(seen, expected, strict=True))


def bound(degrees):
    """What chi-square exceeds once in a million (Wilson and Hilferty: its cube root is nearly normal)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + Z * spread**0.5) ** 3
