"""The whole way from a raw row to a token, as plain Python over lists: slow, obvious, and written without the fast one.

Rules round like fp32, because ties that rounding makes are part of the law; probabilities are in doubles. Where a
double and an fp32 could disagree about which side of a bound they are on, every answer on either side is right.
"""

import math
import struct
from itertools import accumulate

MASK64, MASK32 = 2**64 - 1, 2**32 - 1
MASS_SLACK = 3e-6  # fp32 exp of numbers below 30: some 30 * 2^-24
SCORE_SLACK = 3e-5  # two fp32 logs and a sum of numbers below 128


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def mixed(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def bits(seed, choice, position, token):
    key = mixed(mixed(mixed(seed & MASK64) ^ choice) ^ position)
    x = ((token ^ key >> 32) * 0xED5AD4BB) & MASK32
    x ^= x >> 11
    x = ((x + key) & MASK32) * 0xAC4C1B51 & MASK32
    x ^= x >> 15
    x = x * 0x31848BAB & MASK32
    x ^= x >> 14
    return x >> 9


def noise(seed, choice, position, token):
    return -math.log(-math.log((bits(seed, choice, position, token) + 0.5) / 2**23))


def after_rules(row, params, prompt, output, stop_ids):
    row = [f32(z) for z in row]
    for id, z in enumerate(row):
        count = output.count(id)
        if params.repetition_penalty != 1 and (count or id in prompt):
            r = f32(params.repetition_penalty)
            z = f32(z / r) if z > 0 else f32(z * r)
        if count:
            z = f32(z - f32(count * f32(params.frequency_penalty)))
            z = f32(z - f32(params.presence_penalty))
        if id in params.logit_bias:
            z = f32(z + f32(params.logit_bias[id]))
        if id in params.banned or (len(output) < params.min_tokens and id in stop_ids):
            z = -math.inf
        row[id] = z
    return row


def ranked(row):
    return sorted(range(len(row)), key=lambda id: (-row[id], id))


def likelihoods(row, params):
    """exp((z - max z) / T) in the order of the row."""
    order = ranked(row)
    return [math.exp((row[id] - row[order[0]]) / f32(params.temperature)) for id in order]


def prefixes(row, params):
    """Every right number of ids to keep; almost always one."""
    e = likelihoods(row, params)
    limit = min(params.top_k or len(e), len(e))
    mass = list(accumulate(e[:limit]))
    whole = mass[-1]  # what top-k leaves counts as everything
    counts = {limit}
    if params.top_p < 1:
        counts = {min(limit, reaching(mass, whole, p)) for p in around(f32(params.top_p), exact(e, mass))}
    if params.min_p > 0:
        floors = around(f32(params.min_p), False)
        counts = {max(1, min(n, sum(x >= floor for x in e))) for n in counts for floor in floors}
    return counts


def reaching(mass, whole, p):
    return next((n for n, m in enumerate(mass, 1) if f32(m / whole) >= p), len(mass))


def exact(e, mass):
    """All values tie with the largest or vanish beside it: doubles and fp32 agree on every bit."""
    return all(x == 1 or x < 2.0**-60 for x in e) and mass[-1] < 2**20


def around(bound, exactly):
    return [bound] if exactly else [bound * (1 - MASS_SLACK), bound, bound * (1 + MASS_SLACK)]


def tokens(row, params, position):
    """Every right token for a row that the rules have processed; almost always one."""
    order = ranked(row)
    if params.temperature <= 1e-4:
        return {order[0]}
    scores = {id: row[id] + params.temperature * noise(params.seed, params.choice, position, id) for id in order}
    right = set()
    for count in prefixes(row, params):
        best = max(scores[id] for id in order[:count])
        right |= {id for id in order[:count] if scores[id] >= best - SCORE_SLACK}
    return right


def probabilities(row, params):
    """The law that draws from a processed row must follow."""
    (count,) = prefixes(row, params)
    e = likelihoods(row, params)[:count]
    return {id: x / sum(e) for id, x in zip(ranked(row), e, strict=False)}
