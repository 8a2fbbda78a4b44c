"""Makes judging.json beside it: what scipy says of samples, and how often a change is found.

    python -m venv venv && venv/bin/pip install numpy scipy && venv/bin/python judging.py

The figures are scipy's wherever scipy has them; what it lacks (intervals of rank tests, p of tied samples without
drawing) is counted out here in whole numbers, and compared with scipy where both exist. crates/measure/tests/judging.rs
reads the file. Same versions, same seed, same file.
"""

import itertools
import json
import math
import pathlib

import numpy as np
import scipy
from scipy import stats

SEED = 20_261_120
EVERY_WAY = stats.PermutationMethod(n_resamples=np.inf)
SIGNED_EXACT_MAX, SUM_EXACT_MAX = 50, 100

# The noise of a trial, as a logarithm: normal with this deviation, a drift that both sides of a round share, and
# now and then a trial that lost much of its time to something else.
NOISE = {"sd": 0.02, "drift_sd": 0.05, "outlier_share": 0.02, "outlier_mean": 0.1}
REPETITIONS = 40_000


def signed_counts(count):
    """In how many of the 2^count ways to sign the ranks 1..count the positive ones have each sum."""
    ways = [1]
    for rank in range(1, count + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways)]
    return ways


def sum_counts(left, right):
    """In how many ways `left` of left + right values exceed the others each number of times."""
    table = {(0, n): [1] for n in range(right + 1)} | {(m, 0): [1] for m in range(left + 1)}
    for m, n in itertools.product(range(1, left + 1), range(1, right + 1)):
        # The greatest value is of the one side (above all n others) or of the other.
        one, other = [0] * n + table[m - 1, n], table[m, n - 1]
        table[m, n] = [a + b for a, b in itertools.zip_longest(one, other, fillvalue=0)]
    return table[left, right]


def cut(counts, confidence):
    """The largest statistic with at most half of what `confidence` leaves at or below it; None if there is none."""
    missed = round((1 - confidence) * 1000)
    tails = itertools.accumulate(counts)
    return max((at for at, tail in enumerate(tails) if 2000 * tail <= missed * sum(counts)), default=None)


def normal_cut(mean, deviation, confidence):
    return math.floor(mean + deviation * stats.norm.ppf((1 - confidence) / 2) - 0.5)


def location(values, cuts):
    values = np.sort(values)
    ends = {}
    for name, at in zip(("95", "90"), cuts):
        ends["low" + name] = None if at is None else values[at]
        ends["high" + name] = None if at is None else values[len(values) - 1 - at]
    return {"value": np.median(values)} | ends


def two_sided(sums, seen):
    """Twice the smaller tail, both holding what was seen, of all equally likely sums."""
    below, above = sum(s <= seen for s in sums), sum(s >= seen for s in sums)
    return min(1.0, 2 * min(below, above) / len(sums))


def walsh(differences):
    left, right = np.triu_indices(len(differences))
    return (differences[left] + differences[right]) / 2


def signed_case(name, differences):
    differences = np.asarray(differences)
    counted = differences[differences != 0]
    n = len(counted)
    ranks = stats.rankdata(np.abs(counted))
    tied = n != len(np.unique(np.abs(counted)))
    if n == 0:
        p, source = 1.0, "by definition"
    elif n > SIGNED_EXACT_MAX:
        p, source = stats.wilcoxon(counted, correction=True, method="asymptotic").pvalue, "wilcoxon, asymptotic"
    elif not tied:
        p, source = stats.wilcoxon(counted, method="exact").pvalue, "wilcoxon, exact"
    elif n <= 14:
        signs = itertools.product((0, 1), repeat=n)
        sums = [2 * sum(itertools.compress(ranks, sign)) for sign in signs]
        p, source = two_sided(sums, 2 * ranks[counted > 0].sum()), "every way to sign"
        assert abs(p - stats.wilcoxon(counted, method=EVERY_WAY).pvalue) < 1e-12, name
    else:
        raise ValueError("too many ties to count out: " + name)
    m = len(differences)
    if m <= SIGNED_EXACT_MAX:
        cuts = [cut(signed_counts(m), confidence) for confidence in (0.95, 0.9)]
    else:
        mean, variance = m * (m + 1) / 4, m * (m + 1) * (2 * m + 1) / 24
        cuts = [normal_cut(mean, variance**0.5, confidence) for confidence in (0.95, 0.9)]
    return {"name": name, "differences": differences, "p": p, "source": source} | location(walsh(differences), cuts)


def sum_case(name, base, new):
    base, new = np.asarray(base), np.asarray(new)
    both = np.concatenate([base, new])
    ranks = stats.rankdata(both)
    tied = len(both) != len(np.unique(both))
    if len(both) > SUM_EXACT_MAX:
        p = stats.mannwhitneyu(base, new, use_continuity=True, method="asymptotic").pvalue
        source = "mannwhitneyu, asymptotic"
    elif not tied:
        p, source = stats.mannwhitneyu(base, new, method="exact").pvalue, "mannwhitneyu, exact"
    else:
        sums = [2 * sum(chosen) for chosen in itertools.combinations(ranks, len(base))]
        p, source = two_sided(sums, 2 * ranks[: len(base)].sum()), "every way to deal"
        assert abs(p - stats.mannwhitneyu(base, new, method=EVERY_WAY).pvalue) < 1e-12, name
    if len(both) <= SUM_EXACT_MAX:
        cuts = [cut(sum_counts(len(base), len(new)), confidence) for confidence in (0.95, 0.9)]
    else:
        product = len(base) * len(new)
        deviation = (product * (len(both) + 1) / 12) ** 0.5
        cuts = [normal_cut(product / 2, deviation, confidence) for confidence in (0.95, 0.9)]
    differences = np.subtract.outer(new, base).ravel()
    return {"name": name, "base": base, "new": new, "p": p, "source": source} | location(differences, cuts)


def signed_cases(rng):
    def fine(n, shift):
        return np.round(rng.normal(shift, 1, n), 6)

    def coarse(n, shift, digits=0):
        return np.round(rng.normal(shift, 1.5, n), digits) + 0.0

    yield signed_case("one", [0.3])
    for n in (2, 4, 5, 6, 7, 10, 13, 20, 30, 50):
        yield signed_case(f"{n} apart", fine(n, 0.4))
    yield signed_case("8 all above", np.abs(fine(8, 1)) + 0.1)
    yield signed_case("4 all zero", [0.0] * 4)
    yield signed_case("6 alike", [0.25] * 6)
    for n in (5, 6, 8, 10, 12, 14):
        yield signed_case(f"{n} with ties and zeros", coarse(n, 0.5))
    yield signed_case("12 with few ties", coarse(12, 0.6, 1))
    for n in (51, 80, 150):
        yield signed_case(f"{n} apart", fine(n, 0.2))
        yield signed_case(f"{n} with ties and zeros", coarse(2 * n, 0.3))


def sum_cases(rng):
    def fine(n, shift):
        return np.round(rng.normal(shift, 1, n), 6)

    def coarse(n, shift):
        return np.round(rng.normal(shift, 1.2, n)) + 0.0

    for m, n in ((1, 1), (1, 4), (3, 3), (3, 4), (4, 4), (5, 8), (8, 5), (6, 6), (10, 10), (7, 20), (20, 20), (30, 30)):
        yield sum_case(f"{m} and {n} apart", fine(m, 0), fine(n, 0.8))
    for m, n in ((1, 3), (3, 3), (4, 6), (6, 4), (5, 5), (7, 7), (9, 7), (8, 9)):
        yield sum_case(f"{m} and {n} with ties", coarse(m, 0), coarse(n, 0.9))
    yield sum_case("5 and 4 alike", [2.0] * 5, [2.0] * 4)
    # Below its mean, and yet with the smaller tail above it.
    yield sum_case("7 and 2, skewed by ties", [1.0] * 6 + [2.0], [0.0, 3.0])
    for m, n in ((51, 51), (30, 90), (120, 60)):
        yield sum_case(f"{m} and {n} apart", fine(m, 0), fine(n, 0.3))
        yield sum_case(f"{m} and {n} with ties", coarse(m, 0), coarse(n, 0.3))


def adjust_cases(rng):
    for n in (1, 2, 5, 12, 40):
        p = np.round(rng.beta(0.4, 1.5, n), 5)
        yield {"p": p, "adjusted": stats.false_discovery_control(p, method="bh")}
    p = np.array([0.01, 0.01, 0.04, 0.04, 0.9, 1.0, 0.03])
    yield {"p": p, "adjusted": stats.false_discovery_control(p, method="bh")}


def trials(rng, shape):
    """Logarithms of trials without the drift that both sides share."""
    logs = rng.normal(0, NOISE["sd"], shape)
    lost = rng.random(shape) < NOISE["outlier_share"]
    return logs - lost * rng.exponential(NOISE["outlier_mean"], shape)


def found(p, values, cuts):
    """The share of rows that say that the new side is better, where more is better."""
    values = np.sort(values, axis=1)
    (low, _), (low90, high90) = [(values[:, at], values[:, values.shape[1] - 1 - at]) for at in cuts]
    equivalent = (low90 >= math.log(0.98)) & (high90 <= math.log(1.02))
    return np.mean((p < 0.05) & (low > 0) & ~equivalent)


def paired_power(rng, n, change):
    drift = rng.normal(0, NOISE["drift_sd"], (REPETITIONS, n))
    base, new = trials(rng, (REPETITIONS, n)) + drift, trials(rng, (REPETITIONS, n)) + drift + math.log(change)
    logs = new - base
    left, right = np.triu_indices(n)
    cuts = [cut(signed_counts(n), confidence) for confidence in (0.95, 0.9)]
    p = stats.wilcoxon(logs, axis=1, method="exact").pvalue
    return found(p, (logs[:, left] + logs[:, right]) / 2, cuts)


def two_sample_power(rng, n, change):
    base, new = trials(rng, (REPETITIONS, n)), trials(rng, (REPETITIONS, n)) + math.log(change)
    cuts = [cut(sum_counts(n, n), confidence) for confidence in (0.95, 0.9)]
    p = stats.mannwhitneyu(base, new, axis=1, method="exact").pvalue
    return found(p, (new[:, :, None] - base[:, None, :]).reshape(REPETITIONS, n * n), cuts)


def power_cases(rng):
    for n, change in itertools.product((6, 10, 20), (1.02, 1.05)):
        yield {"form": "paired", "trials": n, "change": change, "found": paired_power(rng, n, change)}
    for change in (1.02, 1.05):
        yield {"form": "two_samples", "trials": 10, "change": change, "found": two_sample_power(rng, 10, change)}


def bound_cases():
    """Upper ends of two-sided 95% intervals of a share (Clopper and Pearson)."""
    for seen, of in ((0, 400), (12, 400), (20, 400), (32, 400), (400, 400), (90, 3000)):
        interval = stats.binomtest(seen, of).proportion_ci(0.95, method="exact")
        yield {"seen": seen, "of": of, "low": interval.low, "high": interval.high}


def plain(value):
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def main():
    rng = np.random.default_rng(SEED)
    made = {"by": "judging.py", "numpy": np.__version__, "scipy": scipy.__version__, "seed": SEED}
    lists = {
        "signed_rank": signed_cases(rng),
        "rank_sum": sum_cases(rng),
        "adjust": adjust_cases(rng),
        "bounds": bound_cases(),
        "power": power_cases(rng),
    }
    parts = [f'"made": {json.dumps(made)}', f'"noise": {json.dumps(NOISE | {"repetitions": REPETITIONS})}']
    for name, cases in lists.items():
        lines = ",\n".join(json.dumps({key: plain(value) for key, value in case.items()}) for case in cases)
        parts.append(f'"{name}": [\n{lines}\n]')
    target = pathlib.Path(__file__).with_suffix(".json")
    target.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
