"""Errors of the library in the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Iterable

HINTS = (
    (r"tucket\.ltr takes observed='finite'", "fit, reduce and ranks --held-out take --missing nan"),
    (r"observed='finite'", "--missing nan"),
    (r"observed='stored'", "--missing unstored"),
    (r"'all', 'finite', 'stored', or a Boolean array", "a Boolean tensor"),
    (r"give 'finite' or an array", "give --missing nan or --observed"),
    (r"^observed: (retain|max_parameters) is", r"\1: it is"),
    (r"^observed: (?!got|shape)", ""),
)
"""What is called something else on the command line, or is chosen by another option."""


def as_typed(message: str, options: Iterable[str]) -> str:
    """Name options as users type them.

    >>> as_typed("observed: rank='mdl' is for tensors without gaps", ["rank"])
    '--rank mdl is for tensors without gaps'
    >>> as_typed("n_iter_max: got 0", ["n_iter_max"])
    '--n-iter-max: got 0'
    """
    for pattern, words in HINTS:
        message = re.sub(pattern, words, message)
    names = "|".join(options)
    message = re.sub(rf"\b({names})='?([\w.]+)'?", lambda found: f"{_option(found[1])} {found[2]}", message)
    return re.sub(rf"^({names})(?=:)", lambda found: _option(found[1]), message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
