"""The numbers of a training. All are public; those that the accountant needs stand in the event, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Numbers of a training of the adversarial generator.

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
        rule_loss: "head": a rule is met by making its head true, and pulls shares towards heads; "holds": -log of the probability
            that it holds. It came later: see `settings_text`.
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
    rule_loss: Literal["head", "holds"] = field(default="head", repr=False)

    def rate(self, n_records: int) -> float:
        """The chance of each person to be in a step."""
        return min(1.0, self.batch / n_records)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoencoderSettings:
    """Numbers of a training of the autoencoder. The defaults were tuned on ma2019 (`tests/bench/kipps_generators.py`).

    Attributes:
        steps: of encoder and decoder together.
        batch: people in a step, on average: what sums of gradients are divided by.
        latent: numbers that a record is made of.
        hidden: units of the hidden layer, of encoder and of decoder.
        clip: the norm that a person's gradient is cut to.
        rule_weight: of the rules in the decoder's loss; 0: it does not know them.
        share_weight: of the noisy shares of the columns in the decoder's loss.
        samples: records of a step that both are computed of; no person is among them.
        rate_of_learning: of all weights.
        average: how much of the mean of the decoders before stays in a step; the mean is what records come from.
    """

    steps: int = 1500
    batch: int = 500
    latent: int = 16
    hidden: int = 64
    clip: float = 1.0
    rule_weight: float = 10.0
    share_weight: float = 2.0
    samples: int = 500
    rate_of_learning: float = 1e-2
    average: float = 0.99

    def rate(self, n_records: int) -> float:
        """Return the chance of each person to be in a step."""
        return min(1.0, self.batch / n_records)


AnySettings: TypeAlias = Settings | AutoencoderSettings

GENERATORS: Final[Mapping[str, type[Settings] | type[AutoencoderSettings]]] = {
    "gan": Settings,
    "vae": AutoencoderSettings,
}
"""Names that a user chooses a generator by."""


def generator_name(settings: AnySettings) -> str:
    """Return the name that a user chooses this generator by.

    >>> generator_name(AutoencoderSettings())
    'vae'
    """
    return next(name for name, kind in GENERATORS.items() if type(settings) is kind)


def settings_text(settings: AnySettings) -> str:
    """Return all numbers of a training, by which ledger and checkpoints tell trainings apart.

    What came later is left out where it has its default, so trainings of a program before keep their names.

    >>> settings_text(Settings()) == repr(Settings()), settings_text(Settings(rule_loss="holds")).endswith("rule_loss=holds")
    (True, True)
    """
    later = "" if isinstance(settings, AutoencoderSettings) or settings.rule_loss == "head" else settings.rule_loss
    return repr(settings) + (f" rule_loss={later}" if later else "")
