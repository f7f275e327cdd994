"""Attacks: what a table tells of the people whose records it was made from, beyond what it tells of others.

Every attack is made on members and on people of the holdout, whose records were not used, and only what it shows more of members
is disclosure. Attackers have the published records and know the study's rules: a value that rules make impossible is not
guessed, and one that they determine is nobody's success. Without a holdout rates are there, and no figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked
from verticil.evaluate.measures import singling_out
from verticil.evaluate.measures.coded import CodedTable, numbered
from verticil.evaluate.measures.disclosure import Attribution, Known, attributed, cap, gcap
from verticil.evaluate.measures.neighbours import Guess, guesses, linked, nearest, points
from verticil.evaluate.measures.risks import Rate, nearer, rate, risk, separation
from verticil.evaluate.measures.utility import ALL_CLASSIFIERS, utility
from verticil.evaluate.metrics import Measured, Metric, Row, Setting
from verticil.evaluate.rounds import Play, Round
from verticil.evaluate.utility import labelled
from verticil.shared.core.arrays import Bools, Floats
from verticil.shared.numerics.model.elimination import Factor

TOLERANCE: Final = 0.05
"""A number is guessed rightly within so large a part of the guess (as anonymeter has it)."""
FALSE_ALARMS: Final = (0.001, 0.01, 0.1)
FEW_FALSE_ALARMS: Final = 0.01
"""Share of others who may be taken for members, of the headline figure."""
_CONDITIONS: Final = 500  # of each kind, for singling out
_NEARER: Final = 1_000  # published records whose distance to members and others is compared
_SPLITS: Final = 3  # of the columns between two sides; of more parties those with the most columns
_LEARNERS: Final = ("NB", "RF")  # without --full; the others cost more, or learn too little by heart to tell
_LEARNED: Final = 5_000  # published records that they learn from, without --full

_Sides = list[tuple[str, CodedTable]]


def _sides(given: Round) -> _Sides:
    """Who is attacked."""
    return [("members", given.members), *([] if given.others is None else [("others", given.others)])]


# ---- what rules say


def _factors(setting: Setting, names: Sequence[str]) -> list[Factor]:
    """Of each rule and function: positions of its columns, and a table with an axis for each, 1 where they go together."""
    found = list(setting.functions.values())
    if setting.support is not None:
        place = [names.index(name) for name in setting.support.schema.names]
        found += [(tuple(place[at] for at in scope), table) for scope, table in setting.support.factors]
    return found


def possible_codes(factors: Sequence[Factor], table: CodedTable, column: int) -> Bools | None:
    """Which categories of one column each record can have by the rules, all its others as they are.

    Args:
        factors: positions of columns, and a table with an axis for each, 1 where they go together.
        table: the records; what they have in `column` is not looked at.
        column: position.

    Returns:
        (n, K), all of a record that breaks a rule whatever the category is; None: no rule is about the column.
    """
    about = [(scope, met) for scope, met in factors if column in scope]
    if not about:
        return None
    found = np.ones((table.n, table.n_states[column]), dtype=np.bool_)
    for scope, met in about:
        others = tuple(table.codes[other] for other in scope if other != column)
        found &= np.moveaxis(met, scope.index(column), -1)[others] > 0
    found[~found.any(axis=1)] = True
    return found


def _open(possible: Bools | None, n: int) -> Bools:
    """(n,), whether rules leave more than one value."""
    return np.ones(n, dtype=np.bool_) if possible is None else possible.sum(axis=1) > 1


def _most_common(real: CodedTable, table: CodedTable, column: int, possible: Bools | None) -> Bools:
    """Whether somebody is right who knows the margin and the rules, and has no published record."""
    margin = np.bincount(real.codes[column], minlength=table.n_states[column]) + 0.5  # what nobody has is possible, too
    scores = np.broadcast_to(margin, (table.n, len(margin))) if possible is None else possible * margin
    return np.asarray(scores.argmax(axis=1) == table.codes[column])


# ---- attribution and inference


def _attribution(given: Round, play: Play, setting: Setting) -> Measured:
    sides = _sides(given)
    published, *asked = points(play.published, *(table for _, table in sides))
    factors = _factors(setting, given.real.names)
    masks = [[possible_codes(factors, table, column) for column in range(len(table.names))] for _, table in sides]
    found = [list(guesses(side, published, mask)) for side, mask in zip(asked, masks, strict=True)]
    rows: list[Row] = []
    for column, name in enumerate(given.real.names):
        shares, tried, common, closed = [], [], [], []
        for (_, table), mask, of_columns in zip(sides, masks, found, strict=True):
            undecided = _open(mask[column], table.n)
            said = _said(of_columns[column], table, play.published, mask[column])
            shares.append(float((np.nan_to_num(said.probability) * undecided).mean()))
            right = guessed_rightly(of_columns[column], table, play.published)
            tried.append(rate(int(np.count_nonzero(right & undecided)), int(np.count_nonzero(undecided))))
            common.append(float((_most_common(given.real, table, column, mask[column]) & undecided).mean()))
            closed.append(1 - float(undecided.mean()))
        row: Row = {"column": name, "determined": closed[0], "most_common": common[0], "attributed": shares[0]}
        if given.others is not None:
            row |= {"attributed_of_others": shares[1], "advantage": shares[0] - shares[1]}
        rows.append(row | _beside("inferred", tried))
    values: dict[str, float] = {}
    if given.others is not None:
        values = {
            "attribution": _worst([row["advantage"] for row in rows]),
            "attribution_mean": float(np.mean([float(row["advantage"]) for row in rows])),
            "inference_risk": _worst([row["risk"] for row in rows]),
        }
    for (side, table), mask in zip(sides, masks, strict=True):
        values |= _of_target(side, table, play.published, setting.target, mask[setting.target])
    most_common = rows[setting.target]["most_common"]
    return Measured(values={**values, "most_common": float(most_common)}, rows=rows)


def _said(guess: Guess, table: CodedTable, published: CodedTable, possible: Bools | None) -> Attribution:
    margin = np.bincount(published.codes[guess.column], minlength=table.n_states[guess.column])
    unknown = np.zeros(table.n, dtype=np.int64)
    return attributed(guess.counts, table.codes[guess.column], distance=unknown, possible=possible, margin=margin)


def guessed_rightly(guess: Guess, table: CodedTable, published: CodedTable) -> Bools:
    """Whether the value of the first of the nearest records is the true one; of a number, near it."""
    first, column = np.maximum(guess.first, 0), guess.column
    right = published.codes[column][first] == table.codes[column]
    mine, theirs = table.values[column], published.values[column]
    if mine is not None and theirs is not None:
        said = theirs[first]
        near = np.abs(said - mine) <= TOLERANCE * np.abs(said)
        right = np.where(np.isnan(said) | np.isnan(mine), right & np.isnan(said) & np.isnan(mine), near)
    return np.asarray(right & (guess.first >= 0))


def _of_target(
    side: str, table: CodedTable, published: CodedTable, target: int, possible: Bools | None
) -> dict[str, float]:
    """GCAP and CAP of the column that is asked for, with its codes as they are; who is determined by rules is left out."""
    left = np.flatnonzero(_open(possible, table.n))
    attacked, offered = (
        _known(table.rows(left), target, None if possible is None else possible[left]),
        _known(published, target),
    )
    of_all, exact = gcap(attacked, offered), cap(attacked, offered)
    end = "" if side == "members" else "_of_others"
    return {f"gcap{end}": of_all.mean, f"cap{end}": exact.mean, f"matched{end}": exact.matched}


def _known(table: CodedTable, target: int, possible: Bools | None = None) -> Known:
    keys = tuple(column for place, column in enumerate(table.codes) if place != target)
    return Known(keys=keys, sensitive=table.codes[target], possible=possible)


def _learned(given: Round, play: Play, setting: Setting) -> Measured:
    """Classifiers that learned from the table, tested on members and on others whose value rules do not determine."""
    most = None if setting.full else _LEARNED
    training = labelled(play.table.rows(np.arange(play.table.n)[:most]), setting.target)
    factors = _factors(setting, given.real.names)
    sides = [
        (side, table.rows(np.flatnonzero(_open(possible_codes(factors, table, setting.target), table.n))))
        for side, table in _sides(given)
    ]
    if any(not table.n for _, table in sides):
        return Measured(values={})
    found = utility(
        training,
        [labelled(table, setting.target) for _, table in sides],
        seed=given.seed,
        classifiers=ALL_CLASSIFIERS if setting.full else _LEARNERS,
        n_classes=given.real.n_states[setting.target],
    )
    rows: list[Row] = [
        {"classifier": name, **{side: item.accuracy[name] for (side, _), item in zip(sides, found, strict=True)}}
        for name in found[0].accuracy
    ]
    values = {f"accuracy_{side}": item.mean for (side, _), item in zip(sides, found, strict=True)}
    if len(sides) > 1:
        rows = [row | {"advantage": float(row["members"]) - float(row["others"])} for row in rows]
        values["advantage"] = values["accuracy_members"] - values["accuracy_others"]
        values["worst_advantage"] = _worst([row["advantage"] for row in rows])
    return Measured(values=values, rows=rows)


# ---- membership


def _membership(given: Round, play: Play, setting: Setting) -> Measured:
    """Nearest records, and how much nearer they are than those of a reference: of the holdout, who are not attacked."""
    sides = _sides(given)
    published, *asked = points(play.published, *(table for _, table in sides))
    distance = [nearest(side, published) for side in asked]
    numbers, *theirs = numbered(play.published, *(table for _, table in sides))
    copied = [rate(int(np.isin(one, numbers).sum()), len(one)) for one in theirs]
    values = {"copied": copied[0].share}
    rows = [_measure("record is published, of members", copied[0])]
    if given.others is None:
        return Measured(values=values, rows=rows)
    values["copied_of_others"] = copied[1].share
    rows.append(_measure("record is published, of others", copied[1]))
    plain = separation(distance[0], distance[1])
    values |= {"area": plain.area, "advantage": plain.advantage}
    reference = given.tested.rows(np.arange(given.others.n, given.tested.n))
    score: list[Floats] = [one.astype(np.float64) for one in distance]
    if reference.n:
        usual, *asked = points(reference, *(table for _, table in sides))
        score = [np.log((one + 1) / (nearest(side, usual) + 1)) for one, side in zip(distance, asked, strict=True)]
    curve = separation(score[0], score[1])
    values |= {
        "relative_area": curve.area,
        "relative_advantage": curve.advantage,
        "membership": curve.found(FEW_FALSE_ALARMS),
    }
    for share in FALSE_ALARMS:
        if share * given.others.n >= 1:
            found = rate(curve.found(share) * given.members.n, given.members.n)
            rows.append(_measure(f"found where {share:.1%} of others are taken for members", found))
    values["nearer"] = _nearer(given, play, rows)
    return Measured(values=values, rows=rows)


def _measure(what: str, found: Rate) -> Row:
    return {"what": what, "share": found.share, "low": found.value - found.error, "high": found.value + found.error}


def _nearer(given: Round, play: Play, rows: list[Row]) -> float:
    """Distance to the closest record: published records nearer to members than to as many others."""
    n = min(given.real.n, given.tested.n)
    asked, members, others = points(
        play.table.rows(np.arange(play.table.n)[:_NEARER]),
        given.real.rows(np.arange(n)),
        given.tested.rows(np.arange(n)),
    )
    found = nearer(nearest(asked, members), nearest(asked, others))
    rows.append(_measure("published records nearer to members than to others", rate(found * asked.n, asked.n)))
    return found


# ---- linkability


def _linkability(given: Round, play: Play, setting: Setting) -> Measured:
    sides = _sides(given)
    published, *asked = points(play.published, *(table for _, table in sides))
    rows: list[Row] = []
    for name, left in _splits(given.real.names, setting):
        tried = [rate(int(linked(side, published, left).sum()), side.n) for side in asked]
        rows.append({"one_side": name, "columns": len(left), **_beside("linked", tried)})
    values = {"linked": float(rows[0]["linked"])}
    if given.others is not None:
        values |= {
            "linked_of_others": float(rows[0]["linked_of_others"]),
            "linkability": _worst([row["risk"] for row in rows]),
        }
    return Measured(values=values, rows=rows)


def _splits(names: Sequence[str], setting: Setting) -> list[tuple[str, list[int]]]:
    """Columns of one side: each party's against those of all others; without parties the first half against the second."""
    by: dict[str, list[int]] = {}
    for place, party in enumerate(setting.parties):
        by.setdefault(party, []).append(place)
    if len(by) < 2:
        return [("the first half of the columns", list(range(len(names) // 2)))]
    largest = sorted(by.items(), key=lambda item: (-len(item[1]), item[0]))
    return [(name or "nobody", places) for name, places in largest][
        : 1 if len(by) == 2 else None if setting.full else _SPLITS
    ]


# ---- singling out


def _singling_out(given: Round, play: Play, setting: Setting) -> Measured:
    """Conditions from the published records, on as many members as others.

    Few conditions hold for one person of few, so that these are not only the attacked ones of a round, and rounds share people.
    """
    n = given.real.n if given.others is None else min(given.real.n, given.tested.n)
    people = [given.real.rows(np.arange(n))] + ([] if given.others is None else [given.tested.rows(np.arange(n))])
    published = _kept(people[0] if play.kind == "baseline" else play.published, _factors(setting, given.real.names))
    generator = given.generator(21)
    rows: list[Row] = []
    values: dict[str, float] = {}
    both = np.zeros((len(people), 2), dtype=np.int64)
    for what, made in (
        ("one column", singling_out.of_one_column(published, _CONDITIONS, generator=generator)),
        (f"{singling_out.COLUMNS} columns", singling_out.of_several(published, _CONDITIONS, generator=generator)),
    ):
        counts = [int((made.holding(table) == 1).sum()) for table in people]
        row = {"on": what, "conditions": len(made), **_beside("single", [rate(count, len(made)) for count in counts])}
        rows.append(row)
        values |= {f"{key}_on_{what}".replace(" ", "_"): float(row[key]) for key in ("single", "risk") if key in row}
        both += [[count, len(made)] for count in counts]
    if given.others is not None:
        values["singling_out"] = risk(*(rate(*counts) for counts in both.tolist())).value
    return Measured(values=values, rows=rows)


def _kept(published: CodedTable, factors: Sequence[Factor]) -> CodedTable:
    """Without records that rules make impossible, which are nobody's; all where all are."""
    held = np.ones(published.n, dtype=np.bool_)
    for scope, met in factors:
        held &= met[tuple(published.codes[column] for column in scope)] > 0
    return published.rows(np.flatnonzero(held)) if held.any() else published


# ---- all


def _beside(what: str, tried: Sequence[Rate]) -> Row:
    """An attack on members and, where there are any, on others: shares and the risk with its interval."""
    row: Row = {what: tried[0].share}
    if len(tried) == 1:
        return row | {"low": tried[0].value - tried[0].error, "high": tried[0].value + tried[0].error}
    found = risk(*tried)
    return row | {f"{what}_of_others": tried[1].share, "risk": found.value, "low": found.low, "high": found.high}


def _worst(values: Sequence[float | int | str]) -> float:
    """The largest; NaN: there is none."""
    known = [float(value) for value in values if not math.isnan(float(value))]
    return max(known, default=math.nan)


_FLOOR: Final = "records of people who are not attacked"
_COPY: Final = "a copy of the attacked records"


def _asked(key: str, title: str, says: str) -> Asked:
    return Asked(key=key, title=title, family="disclosure", better="lower", says=says, floor=_FLOOR, baseline=_COPY)


METRICS: Final = (
    Metric(
        name="membership",
        family="disclosure",
        other_people=True,
        title="Membership by nearest records, copies",
        measure=_membership,
        says="A person's distance to the nearest published record (Gower's) by that to the nearest record of the holdout, "
        "of people who are not attacked. Area: under the curve of members and others found, 1/2 by chance. Nearer: "
        "published records that are nearer to members than to as many others. Copied: whose record is published as it "
        "is.",
        figures=(
            _asked(
                "membership",
                "Members who are found",
                "Share of those whose records were used who are found by their nearest published record where 1 in 100 of others "
                "is taken for one of them.",
            ),
        ),
    ),
    Metric(
        name="attribution",
        family="disclosure",
        other_people=True,
        title="Attribution (GCAP, CAP) and inference of each column by nearest records",
        measure=_attribution,
        says="Of each column the share of the true value among the published records nearest by all other columns (GCAP; "
        "Hittmeir et al. 2022), and how often the first of them has it, of numbers within 5 % (inference; Giomi et "
        "al. 2023, whose risk is (r - r of others) / (1 - r of others), with Wilson's intervals). Values that rules "
        "determine count as not attributed; most common: by the margin and the rules alone.",
        figures=(
            _asked(
                "attribution",
                "Attribution beyond others (GCAP)",
                "How much more of a column is attributed rightly to people whose records were used than to others; of the "
                "worst column.",
            ),
        ),
    ),
    Metric(
        name="classifiers",
        family="disclosure",
        other_people=True,
        title="Inference of one column by classifiers",
        measure=_learned,
        says="Classifiers of scikit-learn learn the column that is asked for from the published records, and are asked for "
        "members and for others.",
    ),
    Metric(
        name="linkability",
        family="disclosure",
        other_people=True,
        title="Linkability of two parts of a record",
        measure=_linkability,
        says="The published records nearest to a person by one side's columns and by the other's have one in common (Giomi "
        "et al. 2023).",
        figures=(
            _asked(
                "linkability",
                "Records whose parts are linked",
                "Share of people whose columns at one organisation and at the others a published record puts together, beyond "
                "that of people whose records were not used.",
            ),
        ),
    ),
    Metric(
        name="singling_out",
        family="disclosure",
        title="Singling out",
        measure=_singling_out,
        says="Conditions that one published record alone meets, and how many of them one person alone meets (Giomi et al. "
        "2023): on one column its ends and values it has once, on three those of a random record. Records that rules "
        "make impossible give none.",
        figures=(
            _asked(
                "singling_out",
                "Conditions that single out",
                "Share of conditions taken from one published record that one person alone meets, beyond those that one alone of "
                "people meets whose records were not used.",
            ),
        ),
    ),
)
