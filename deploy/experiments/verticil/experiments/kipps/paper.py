"""What the paper prints: Table 1, what its text says of Figures 2 to 4 (the drawings are not in its text), and its errata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """A row of Table 1, means over five tables.

    Attributes:
        pmse: of trees.
        chi_square: mean p-value; its column has no heading in the paper.
        ks: mean p-value.
        overlap: printed as overlap of confidence intervals.
        difference: standardized, of coefficients.
    """

    pmse: float
    chi_square: float
    ks: float
    overlap: float
    difference: float


TABLES: Final = "five"
"""Over which the paper's means are, opioid prescriptions and recorded traffic among them."""

TABLE_1: Final = {
    "DPCTGAN": Printed(pmse=0.24, chi_square=0.0, ks=0.02, overlap=5.593, difference=0.38),
    "DPWGAN": Printed(pmse=0.24, chi_square=0.02, ks=0.01, overlap=2.108, difference=0.5),
    "PATE-GAN": Printed(pmse=0.25, chi_square=0.04, ks=0.02, overlap=5.688, difference=0.5),
    "TVAE": Printed(pmse=0.25, chi_square=0.09, ks=0.06, overlap=1.249, difference=9.74),
    "KIPPS": Printed(pmse=0.24, chi_square=0.08, ks=0.06, overlap=5.688, difference=0.45),
}

FIGURE_2: Final = {
    "Adult": {"real records": 0.726, "KIPPS": 0.706, "DPWGAN": 0.692, "PATE-GAN": 0.692, "DPCTGAN": 0.427},
}
"""Mean accuracy of the classifiers, where the text says it (section 6.3)."""

FIGURE_3: Final = {"KIPPS": 0.47, "DPCTGAN": 0.53, "TVAE": 0.57}
"""Mean accuracy of the attack on membership over all tables (section 6.4)."""

FIGURE_4: Final = {"KIPPS": 0.40, "DPCTGAN": 0.51, "DPWGAN": 0.50, "TVAE": 0.58}
"""Mean accuracy of the attack on an attribute over all tables (section 6.4)."""

ERRATA: Final = (
    "Table 1: pMSE is .24 to .25 for every method. Its largest possible value is c(1 - c) = .25 for halves of equal size: all "
    "methods, KIPPS among them, are told from real records nearly without error.",
    'Table 1: "CI overlap" is 1.2 to 5.7. An overlap of two intervals is at most 1. The header of the chi-square column is '
    "missing, and PATE-GAN and KIPPS share 5.688.",
    "Table 1: a mean p-value grows as samples shrink; .08 and .06 are no distances.",
    'Section 6.3: the classifiers\' mean accuracy on Adult is .726 with the real records; always saying "at most 50K" gives '
    ".759.",
    'Section 6.4: an attack on membership with accuracy .47 is a coin; "lower is stronger" below one half has no meaning, for '
    "the attacker may say the opposite.",
    "Figure 4: accuracy alone is no disclosure; who always says the most common value has one, too, and so has who attacks "
    "people whose records were not used.",
    'Section 4.1: "a higher degree earns more" is a tendency and no rule; as a hard rule it would make true records impossible.',
    "Section 3.2.1: rows are drawn given a condition, with weights from exact counts, so a person's chance to be in a step is "
    "not what the accountant of section 3.3 assumes; and no epsilon is stated for any figure.",
)

NOTES: Final = (
    '"KIPPS, vae" is no method of the paper: it is an autoencoder that knows the same rules, with the same accountant. It does '
    "what the paper is for, records that keep rules under a bound; the paper's claims are held against the adversarial generator",
    "every program here is ours and none the authors': DPCTGAN is our generator with the condition only, DPWGAN is it without "
    "condition and knowledge, TVAE and PATE-GAN are small ones of our own",
    "what has an epsilon has the same one, for the replacement of one person; TVAE and the generator without noise have none",
    "of opioid prescriptions, one of the paper's five tables, and of its recordings of a few devices' traffic we know no public "
    "copy: for the recordings stands a simulated table, whose figures say nothing about real networks, for the prescriptions "
    "none; UNSW-NB15 is read with --unsw FILE",
    "columns are in public bins, in place of modes that are fitted to the data; numbers are drawn evenly within a bin, which "
    "Kolmogorov-Smirnov tests notice where people report round ones",
    "pMSE is that of a classification tree, on as many synthetic as real records, so at most .25; beside it stands what chance "
    "does: trees that are told at random which records are synthetic",
    "the paper does not say what its regressions predict; ours are logistic, of the column that classifiers predict. Overlap is "
    "that of 95 % intervals, 0 where they are disjoint (Martins, eq. 12), its mean over the coefficients that both tables "
    "determine",
    "attackers are given the rules: they never guess what a rule makes impossible, whoever made the records",
    "on membership: shadow copies of the whole way to records, each of other people of the same kind, of whom half are in; a "
    "forest learns from them what membership looks like, by what classifiers that learned from the records say (the paper's "
    "attack), and besides by the nearest records",
    "whoever knows the rules leaves out what breaks one, or never draws it; of the diabetes survey no hard rule is known, and "
    "networks with and without rules are the same there",
    "how many steps, people and shadow copies there are was chosen for the time that it takes; nothing was searched for of the "
    "adversarial generator, and the autoencoder's settings were tuned on ma2019, which is none of these tables",
)
