"""Accepting a common list: who is in it is compared with who was in earlier studies, and remembered.

What is remembered, and why, stands in `verticil.party.audit.common_sets`. The site's people read of a small difference in
the log, in `verticil party status` and in the audit log; where the policy says so the study ends instead. Others are told no
more than that, not which study it was.
"""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.party.audit.log import Event, What
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.audit import DAEMON
from verticil.shared.errors import Refusal

_log: Final = logging.getLogger(__name__)


def accept_common_people(
    site: Site, record: StudyRecord, tags: NDArray[np.uint8], *, common_sha256: bytes, at: dt.datetime
) -> None:
    """Write down that this party accepts a common list, and compare its people with those of earlier studies.

    Accepting the same people again, as after an answer that crossed the confirmation, compares them again and writes nothing.

    Args:
        site: this party.
        record: the study.
        tags: of the common people, (n, 14), uint8; see `verticil.party.dataset.perturb.record_tags`.
        common_sha256: of the common list, as all parties know it.
        at: now.

    Raises:
        Refusal: COMMON_SET_TOO_SIMILAR, where the policy refuses that; nothing was kept.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    policy = site.config.policy
    keys = site.common_sets.keys(tags)
    similar = site.common_sets.similar(record.digest, keys, minimum=policy.minimum_difference)
    kept = site.common_sets.keeps(record.digest, keys, similar)
    about = Event(what=What.ALIGNMENT, who=DAEMON, study=record.digest, study_id=record.study_id, sha256=common_sha256)
    if similar and (not kept or policy.on_small_difference == "refuse"):
        others = ", ".join(f"{item.study_id} ({item.digest.hex()[:12]})" for item in similar)
        text = f"fewer than {policy.minimum_difference} people are in only one of this study and {others}"
        site.audit.record(replace(about, what=What.SIMILAR_PEOPLE, detail=f"{policy.on_small_difference}: {text}"), at)
        if policy.on_small_difference == "refuse":
            raise Refusal(
                "COMMON_SET_TOO_SIMILAR",
                f"study '{record.study_id}': {text}",
                hint="releases about nearly the same people tell their difference; see policy.minimum_difference",
            )
        _log.warning("%s: releases about nearly the same people tell their difference", text)
    if kept:
        return
    dropped = site.common_sets.remember(record.digest, keys, similar)
    detail = f"{len(tags)} people in common"
    if dropped:
        detail += f"; no longer compared with: {', '.join(digest.hex()[:12] for digest in dropped)}"
    site.audit.record(replace(about, detail=detail), at)
