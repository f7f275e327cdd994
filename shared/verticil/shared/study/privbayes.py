"""What the owner of a whole table may choose of PrivBayes (``[privbayes]``, `verticil.shared.study.document.PrivBayesRule`)."""

from __future__ import annotations

import math

from verticil.shared.study.document import Study
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.protocols import measures_itself
from verticil.shared.study.vocabulary import MAX_TEXT, NEGATIVE, NEIGHBOURS, fail


def check_privbayes(study: Study, *, source: str) -> None:
    """Check how a study has PrivBayes measure; of a study that has it measure nothing, that it says nothing of it.

    Args:
        study: the study; its structure is checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID.
    """
    rule, where = study.privbayes, f"{source}: privbayes"
    if rule == PrivBayesRule():
        return
    if not measures_itself(study):
        fail(
            where,
            f"goes with the owner of a whole table who runs PrivBayes, got the model '{study.model}' and structure.method "
            f"'{study.structure.method}'",
            hint="remove it, or let the owner run verticil synthesize --method privbayes",
        )
    if rule.tau is not None and not 0 < rule.tau < math.inf:  # also for NaN
        fail(
            f"{where}.tau",
            f"got {rule.tau:g}, expected a finite number of cells > 0",
            hint="leave it out: the noise decides",
        )
    for key, value, choices in (("negative", rule.negative, NEGATIVE), ("neighbours", rule.neighbours, NEIGHBOURS)):
        if value not in choices:
            fail(f"{where}.{key}", f"got '{value[:MAX_TEXT]}', expected one of {', '.join(choices)}")
