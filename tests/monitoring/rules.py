"""The alert rules as the tests load them: the same expressions, with shorter waits and lower thresholds."""

import re

from tests.servers.prometheus import read_rules

#: Of an alert, what is replaced in its expression: minutes of lag become seconds, "again and again" becomes once.
SHORTER = {
    "HeadraceSourceLags": ("> 300", "> 3"),
    "HeadraceEdgeIsStuck": ("> 60", "> 3"),
    "HeadraceSetbacks": ("> 5", "> 0"),
    "HeadraceDeliveryWaits": ("> 900", "> 3"),
}
#: "Scraped during the last day" and rates.
_RANGES = {"1d": "15m", "10m": "15s", "5m": "15s"}


def shortened() -> str:
    """Return all rules with `for:` of a second, short ranges, and the thresholds of SHORTER."""
    text = re.sub(r"for: \d+m", "for: 1s", read_rules("headquarters", "region", "lake"))
    text = re.sub(r"\[(1d|10m|5m)\]", lambda found: f"[{_RANGES[found[1]]}]", text)
    text = re.sub(r"offset (10m|5m)", lambda found: f"offset {_RANGES[found[1]]}", text)
    rules = re.split(r"(?=      - alert: )", text)
    for name, (long, short) in SHORTER.items():
        (number,) = [place for place, rule in enumerate(rules) if rule.startswith(f"      - alert: {name}\n")]
        assert long in rules[number]
        rules[number] = rules[number].replace(long, short)
    return "".join(rules)
