"""How central tells a site how much it uses the site's pools."""

from typing import Final

DEMAND: Final = "engines.demand"
REPEAT_SECONDS: Final = 10.0
"""While there is any: a site counts a report for three times as long."""
