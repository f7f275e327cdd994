"""What a declared quorum means for the person who approves: which parties may be missing in the end, in words.

The approval of a study with ``quorum.min`` is one of every sub-model that the sentences name; why, `study.sub_model` says.
"""

from __future__ import annotations

import itertools

from verticil.shared.study.document import Study
from verticil.shared.study.sub_model import obstacle


def quorum_words(study: Study, party: str, *, minimum_parties: int) -> tuple[str, ...]:
    """Sentences about the study's quorum; none: it declares no deadline.

    Args:
        study: as proposed.
        party: whose people approve.
        minimum_parties: of this site's policy.
    """
    rule = study.quorum
    if rule is None:
        return ()
    after = f"{rule.deadline_seconds / 3600:g} hours after it was submitted"
    others = [name for name in study.parties if name != party]
    most = 0 if rule.minimum is None else len(study.parties) - rule.minimum
    dispensable = [name for name in others if most and obstacle(study, {name}) is None]
    if not dispensable:
        return (f"deadline: {after}, every party's part must be there, or the study fails; no party may be missing",)
    least = next(
        len(study.parties) - size
        for size in range(most, 0, -1)
        if any(
            obstacle(study, set(missing_names)) is None for missing_names in itertools.combinations(dispensable, size)
        )
    )
    columns = [
        f"'{name}' (" + ", ".join(item.name for item in study.schema.variables if item.owner == name) + ")"
        for name in dispensable
    ]
    words = [
        f"quorum: {after} the study goes on without parties that are missing, with at least {least} of its"
        f" {len(study.parties)} parties; to approve it is to approve every such sub-model",
        f"may be missing, with their columns: {', '.join(columns)}; then the people in common are others, and more;"
        " this party's columns, their noise and who gets them stay as above",
    ]
    required_names = [name for name in others if name not in dispensable]
    if required_names:
        words.append(f"may not be missing: {', '.join(required_names)}; the study's structure names their columns")
    if minimum_parties > least:
        words.append(f"this site's policy.minimum_parties = {minimum_parties} ends a sub-model of fewer parties")
    return tuple(words)
