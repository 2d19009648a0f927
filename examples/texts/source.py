"""Messages to a shop, each with the team that should answer it: made by rules and chance for this example."""

from __future__ import annotations

import numpy as np
import pandas as pd

MESSAGES = 900
OPENINGS = ("Hello", "Good morning", "Hi there", "To whom it may concern", "Dear team", "Please help")
PRODUCTS = ("kettle", "lamp", "radio", "blender", "headset", "printer")
SENTENCES = {
    "billing": (
        "I was charged twice for the {product}",
        "the invoice of my {product} has the wrong address",
        "when will the money for the {product} be back on my card",
        "the voucher was not taken off the price of the {product}",
    ),
    "delivery": (
        "the parcel with the {product} has not arrived",
        "the courier left the {product} in the rain",
        "can the {product} be sent to another street",
        "the box of the {product} came open and damaged",
    ),
    "technical": (
        "the {product} does not switch on any more",
        "the {product} makes a noise and smells of smoke",
        "how do I connect the {product} to my phone",
        "the display of the {product} shows error five",
    ),
}
ENDINGS = ("thank you", "this is urgent", "I bought it last week", "what should I do", "kind regards", "please answer")
STRAYED = 0.04
"""Share of the messages that stand with another team: nobody labels without mistakes."""


def load() -> pd.DataFrame:
    """One row a message: its text, the channel by which it came, and the team."""
    random = np.random.default_rng(5)
    teams = list(SENTENCES)
    rows = []
    for _ in range(MESSAGES):
        team = teams[random.integers(len(teams))]
        sentence = SENTENCES[team][random.integers(4)].format(product=PRODUCTS[random.integers(len(PRODUCTS))])
        opening, ending = OPENINGS[random.integers(len(OPENINGS))], ENDINGS[random.integers(len(ENDINGS))]
        order = f"order {random.integers(10_000, 99_999)}"
        label = teams[random.integers(len(teams))] if random.random() < STRAYED else team
        channel = ("mail", "chat", "phone")[random.integers(3)]
        rows.append((f"{opening}, {sentence}, {ending}. {order}", channel, label))
    return pd.DataFrame(rows, columns=["message", "channel", "team"])
