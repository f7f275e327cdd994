"""The numbers of a training. All are public; those that the accountant needs stand in the event, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers of a training.

    Attributes:
        steps: of critic and generator, one of each in turn.
        batch: people in a step, on average: what sums of gradients are divided by.
        noise: numbers that a record is made of, beside its condition.
        generator, critic: sizes of the hidden layers.
        clip: the norm that a person's gradient is cut to.
        penalty: weight of the gradient's (Gulrajani et al., "Improved training of Wasserstein GANs", NIPS 2017).
        temperature: of the softmax in whose place categories are drawn (E. Jang, S. Gu, B. Poole, ICLR 2017).
        rule_weight: of the rules in the generator's loss; 0: it does not know them.
        rates: of learning, of critic and generator.
    """

    steps: int = 1500
    batch: int = 500
    noise: int = 64
    generator: tuple[int, ...] = (128, 128)
    critic: tuple[int, ...] = (64, 64)
    clip: float = 1.0
    penalty: float = 10.0
    temperature: float = 0.5
    rule_weight: float = 1.0
    rates: tuple[float, float] = (1e-3, 2e-4)

    def rate(self, n_records: int) -> float:
        """The chance of each person to be in a step."""
        return min(1.0, self.batch / n_records)
