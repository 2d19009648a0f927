"""Adds orders to the log of a shop, made by rules and chance.

python more_orders.py orders.log 200
"""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

BEGIN = datetime(2026, 1, 5, 8)


def lines(first: int, number: int) -> list[str]:
    """Return the lines of orders from number `first` on; the same ones in each call."""
    made = []
    for order in range(first, first + number):
        random = np.random.default_rng([3, order])
        items, price = int(random.integers(1, 7)), float(random.gamma(3, 20))
        channel = ("web", "app", "shop")[random.integers(3)]
        gift = random.random() < 0.2
        odds = -2.2 + 0.35 * items + 0.012 * price - 1.5 * (channel == "shop") - 1.0 * gift
        returned = random.random() < 1 / (1 + np.exp(-odds))
        at = (BEGIN + timedelta(minutes=17 * order)).isoformat(timespec="minutes")
        made.append(
            f"{at} order={order} items={items} price={price:.2f} channel={channel} gift={gift:d} back={returned:d}"
        )
    return made


def main() -> None:
    """Append the orders that come after the last one in the file."""
    path, number = Path(sys.argv[1]), int(sys.argv[2])
    before = path.read_text().splitlines() if path.exists() else []
    with path.open("a") as log:
        log.writelines(line + "\n" for line in lines(len(before), number))
    print(f"{number} orders added, {len(before) + number} in {path}")


if __name__ == "__main__":
    main()
