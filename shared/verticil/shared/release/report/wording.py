"""Numbers as a reader meets them: rounded so that a stated bound stays a bound, and large factors in words.

What is an upper bound is rounded up, what is a lower bound is rounded down; estimates are rounded to the nearest.
"""

from __future__ import annotations

import math

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SLACK = 1e-9  # binary rounding must not lift 0.6 to 60.1 %


def percent(value: float, digits: int = 1) -> str:
    """A probability to the nearest.

    >>> percent(0.7289), percent(1.0)
    ('72.9%', '100%')
    """
    text = f"{100 * value:.{digits}f}".replace("-0.0", "0.0") if value else "0"
    return "100%" if value == 1 else f"{text}%"


def at_most(value: float) -> str:
    """A probability that is an upper bound, rounded up to a tenth of a percent.

    >>> at_most(0.61363), at_most(0.6), at_most(0.9999999), at_most(1.0)
    ('61.4%', '60.0%', 'practically 100%', '100%')
    """
    if value == 1:
        return "100%"
    if value > 0.999:
        return "practically 100%"
    return f"{math.ceil(1000 * value - _SLACK) / 10:.1f}%"


def at_least(value: float) -> str:
    """A probability that is a lower bound, rounded down to a tenth of a percent.

    >>> at_least(0.728), at_least(0.72999), at_least(1.0)
    ('72.8%', '72.9%', '100%')
    """
    return "100%" if value == 1 else f"{math.floor(1000 * value + _SLACK) / 10:.1f}%"


def factor(epsilon: float) -> str:
    """By how many times e^epsilon multiplies: rounded up to three digits; from a million on as a power of ten.

    >>> factor(math.log(9)), factor(2.0), factor(35.2), factor(math.inf)
    ('9 times', '7.39 times', '2 × 10¹⁵ times', 'no limit')
    """
    if math.isinf(epsilon):
        return "no limit"
    if epsilon < math.log(1e6):
        value = math.exp(epsilon)
        digits = 2 - math.floor(math.log10(value))
        rounded = math.ceil(value * 10.0**digits - 1e-6) / 10.0**digits
        text = f"{rounded:.{digits}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded:,.0f}"
        return f"{text} times"
    exponent = math.floor(epsilon / math.log(10))
    lead = math.ceil(math.exp(epsilon - exponent * math.log(10)) - _SLACK)
    if lead == 10:
        lead, exponent = 1, exponent + 1
    return f"{lead} × 10{str(exponent).translate(_RAISED)} times"


def epsilon(value: float) -> str:
    """An epsilon, rounded up to two digits behind the point.

    >>> epsilon(2.0), epsilon(1.0986), epsilon(math.inf)
    ('2.00', '1.10', 'no limit')
    """
    return "no limit" if math.isinf(value) else f"{math.ceil(value * 100 - 1e-6) / 100:.2f}"


def tiny(value: float) -> str:
    """A small probability that is an upper bound, rounded up to two digits.

    >>> tiny(1e-6), tiny(3 * 1e-6), tiny(2.51e-9), tiny(0.01)
    ('10⁻⁶', '3 × 10⁻⁶', '2.6 × 10⁻⁹', '0.01')
    """
    if value >= 0.001:
        return f"{value:g}"
    exponent = math.floor(math.log10(value) + _SLACK)
    lead = math.ceil(value / 10.0**exponent * 10 - 1e-6) / 10
    power = f"10{str(exponent).translate(_RAISED)}"
    return power if lead == 1 else f"{lead:g} × {power}"


def share(value: float) -> str:
    """An estimated share, which can lie below 0 or above 1.

    >>> share(0.4213), share(-0.004), share(math.nan)
    ('42.1%', '−0.4%', 'n/a')
    """
    if math.isnan(value):
        return "n/a"
    text = f"{100 * value:.1f}%"
    return "0.0%" if text == "-0.0%" else text.replace("-", "−")


def with_error(value: float, error: float) -> str:
    """An estimated share with its standard error.

    >>> with_error(0.4213, 0.004), with_error(-0.004, 0.0113), with_error(math.nan, math.nan)
    ('42.1 ± 0.4%', '−0.4 ± 1.1%', 'n/a')
    """
    return "n/a" if math.isnan(value) else f"{share(value).removesuffix('%')} ± {share(error)}"


def interval(low: float, high: float) -> str:
    """An interval of shares.

    >>> interval(0.499, 0.5221), interval(math.nan, math.nan)
    ('49.9–52.2%', 'n/a')
    """
    return "n/a" if math.isnan(low) or math.isnan(high) else f"{100 * low:.1f}–{100 * high:.1f}%"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """A count with its noun.

    >>> count(1, "column"), count(13, "column"), count(30647, "person", "people")
    ('1 column', '13 columns', '30,647 people')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"
