"""What rules add to the loss of a generator, in torch. Rules are public knowledge: no person is in it, and it costs nothing."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from verticil.gan.conditions import Literal, Term, body_probability, head_probability

LEAST: Final = 1e-6
"""Probabilities below this have no larger loss."""


def with_tensors(term: Term) -> Term:
    """Return the rule with tables that torch multiplies by."""
    import torch  # pyright: ignore[reportMissingImports]

    def converted(literals: tuple[Literal, ...]) -> tuple[Literal, ...]:
        return tuple(
            Literal(scope=item.scope, table=torch.as_tensor(item.table.astype(np.float64))) for item in literals
        )

    return dataclasses.replace(term, body=converted(term.body), head=converted(term.head))


def head_loss(parts: list[Any], term: Term) -> Any:
    """Return the cross-entropy of the rule's probability and of its head's, where its body holds.

    The body learns nothing from it: the rule is met by making the head true.

    Args:
        parts: (n, K) of each column, its categories' probabilities.
        term: with tensors.
    """
    head = head_probability(parts, term).clamp(LEAST, 1.0)
    loss = term.probability * head.log()
    if term.probability < 1:
        loss = loss + (1 - term.probability) * (1 - head).clamp(min=LEAST).log()
    return -(body_probability(parts, term).detach() * loss).mean()


def broken_loss(parts: list[Any], term: Term) -> Any:
    """Return the mean -log of the probability that the rule holds (J. Xu et al., "A semantic loss function", ICML 2018).

    Body and head learn from it. A soft rule has the loss of its head, as in `head_loss`. Arguments as there.
    """
    if term.probability < 1:
        return head_loss(parts, term)
    broken = body_probability(parts, term) * (1 - head_probability(parts, term))
    return -(1 - broken).clamp(min=LEAST).log().mean()
