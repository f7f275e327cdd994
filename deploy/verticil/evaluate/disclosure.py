"""Attacks: what a table tells of the people whose records it was made from, beyond what it tells of others.

Every attack is made on members and on people of the holdout, whose records were not used, and only what it shows more of members
is disclosure. Attackers have the published records and know the study's rules: a value that rules make impossible is not
guessed, and one that they determine is nobody's success. Without a holdout no attack is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.evaluate.figures import Asked
from verticil.evaluate.measures import singling_out
from verticil.evaluate.measures.coded import CodedTable, number_records
from verticil.evaluate.measures.disclosure import AttackedRecords, Attribution, attribute_counts, cap, gcap
from verticil.evaluate.measures.neighbours import Guess, find_links, guesses, nearest, points
from verticil.evaluate.measures.risks import Rate, nearer, rate, risk, separation
from verticil.evaluate.measures.utility import ALL_CLASSIFIERS, utility
from verticil.evaluate.metrics import Measured, Metric, Row, Setting
from verticil.evaluate.resampling import Play, Round
from verticil.evaluate.utility import LEARNED, label_records
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

_Sides = list[tuple[str, CodedTable]]


def _sides(this_round: Round) -> _Sides:
    """Return who is attacked, by name: members, then others."""
    return [("members", this_round.members), ("others", this_round.others)]


# ---- what rules say


def _factors(setting: Setting, names: Sequence[str]) -> list[Factor]:
    """Return the factor of each rule and function: positions of its columns, and a table, 1 where they go together."""
    factors = list(setting.functions.values())
    if setting.support is not None:
        place = [names.index(name) for name in setting.support.schema.names]
        factors += [(tuple(place[at] for at in scope), table) for scope, table in setting.support.factors]
    return factors


def possible_codes(factors: Sequence[Factor], table: CodedTable, column: int) -> Bools | None:
    """Return which categories of one column each record can have by the rules, all its others as they are.

    Args:
        factors: positions of columns, and a table with an axis for each, 1 where they go together.
        table: the records; what they have in `column` is not looked at.
        column: position.

    Returns:
        (n, K), all of a record that breaks a rule whatever the category is; None: no rule is about the column.
    """
    about = [(scope, compatible) for scope, compatible in factors if column in scope]
    if not about:
        return None
    possible_states = np.ones((table.n, table.n_states[column]), dtype=np.bool_)
    for scope, compatible in about:
        others = tuple(table.codes[other] for other in scope if other != column)
        possible_states &= np.moveaxis(compatible, scope.index(column), -1)[others] > 0
    possible_states[~possible_states.any(axis=1)] = True
    return possible_states


def _open(possible: Bools | None, n: int) -> Bools:
    """Return (n,), whether rules leave more than one value."""
    return np.ones(n, dtype=np.bool_) if possible is None else possible.sum(axis=1) > 1


def _most_common(real: CodedTable, table: CodedTable, column: int, possible: Bools | None) -> Bools:
    """Return whether somebody is right who knows the margin and the rules, and has no published record."""
    margin = np.bincount(real.codes[column], minlength=table.n_states[column]) + 0.5  # what nobody has is possible, too
    scores = np.broadcast_to(margin, (table.n, len(margin))) if possible is None else possible * margin
    return np.asarray(scores.argmax(axis=1) == table.codes[column])


# ---- attribution and inference


def _attribution(this_round: Round, play: Play, setting: Setting) -> Measured:
    sides = _sides(this_round)
    synthetic, *side_points = points(play.published, *(table for _, table in sides))
    factors = _factors(setting, this_round.real.names)
    masks = [[possible_codes(factors, table, column) for column in range(len(table.names))] for _, table in sides]
    side_guesses = [list(guesses(side, synthetic, mask)) for side, mask in zip(side_points, masks, strict=True)]
    rows: list[Row] = []
    for column, name in enumerate(this_round.real.names):
        shares, rates, common, determined_shares = [], [], [], []
        for (_, table), mask, of_columns in zip(sides, masks, side_guesses, strict=True):
            is_open = _open(mask[column], table.n)
            attribution = _attribute(of_columns[column], table, play.published, mask[column])
            shares.append(float((np.nan_to_num(attribution.probability) * is_open).mean()))
            right = guessed_rightly(of_columns[column], table, play.published)
            rates.append(rate(int(np.count_nonzero(right & is_open)), int(np.count_nonzero(is_open))))
            common.append(float((_most_common(this_round.real, table, column, mask[column]) & is_open).mean()))
            determined_shares.append(1 - float(is_open.mean()))
        row: Row = {
            "column": name,
            "determined": determined_shares[0],
            "most_common": common[0],
            "attributed": shares[0],
            "attributed_of_others": shares[1],
            "advantage": shares[0] - shares[1],
        }
        rows.append(row | _beside("inferred", rates))
    values = {
        "attribution": _worst([row["advantage"] for row in rows]),
        "attribution_mean": float(np.mean([float(row["advantage"]) for row in rows])),
        "inference_risk": _worst([row["risk"] for row in rows]),
    }
    for (side, table), mask in zip(sides, masks, strict=True):
        values |= _of_target(side, table, play.published, setting.target, mask[setting.target])
    most_common = rows[setting.target]["most_common"]
    return Measured(values={**values, "most_common": float(most_common)}, rows=rows)


def _attribute(guess: Guess, table: CodedTable, synthetic: CodedTable, possible: Bools | None) -> Attribution:
    margin = np.bincount(synthetic.codes[guess.column], minlength=table.n_states[guess.column])
    unknown = np.zeros(table.n, dtype=np.int64)
    return attribute_counts(guess.counts, table.codes[guess.column], distance=unknown, possible=possible, margin=margin)


def guessed_rightly(guess: Guess, table: CodedTable, synthetic: CodedTable) -> Bools:
    """Return whether the value of the first of the nearest records is the true one; of a number, near it."""
    first, column = np.maximum(guess.first, 0), guess.column
    right = synthetic.codes[column][first] == table.codes[column]
    mine, theirs = table.values[column], synthetic.values[column]
    if mine is not None and theirs is not None:
        guess_values = theirs[first]
        near = np.abs(guess_values - mine) <= TOLERANCE * np.abs(guess_values)
        right = np.where(np.isnan(guess_values) | np.isnan(mine), right & np.isnan(guess_values) & np.isnan(mine), near)
    return np.asarray(right & (guess.first >= 0))


def _of_target(
    side: str, table: CodedTable, synthetic: CodedTable, target: int, possible: Bools | None
) -> dict[str, float]:
    """Return GCAP and CAP of the column that is asked for, with its codes as they are; who is determined by rules is left out."""
    open_records = np.flatnonzero(_open(possible, table.n))
    original_keys, synthetic_keys = (
        _hide_target(table.rows(open_records), target, None if possible is None else possible[open_records]),
        _hide_target(synthetic, target),
    )
    of_all, exact = gcap(original_keys, synthetic_keys), cap(original_keys, synthetic_keys)
    end = "" if side == "members" else "_of_others"
    return {f"gcap{end}": of_all.mean, f"cap{end}": exact.mean, f"matched{end}": exact.matched}


def _hide_target(table: CodedTable, target: int, possible: Bools | None = None) -> AttackedRecords:
    keys = tuple(column for place, column in enumerate(table.codes) if place != target)
    return AttackedRecords(keys=keys, sensitive=table.codes[target], possible=possible)


def _learn_target(this_round: Round, play: Play, setting: Setting) -> Measured:
    """Measure classifiers that learned from the table, tested on members and on others whose value rules do not determine."""
    most = None if setting.full else LEARNED
    training = label_records(play.table.rows(np.arange(play.table.n)[:most]), setting.target)
    factors = _factors(setting, this_round.real.names)
    sides = [
        (side, table.rows(np.flatnonzero(_open(possible_codes(factors, table, setting.target), table.n))))
        for side, table in _sides(this_round)
    ]
    if any(not table.n for _, table in sides):
        return Measured(values={})
    scores = utility(
        training,
        [label_records(table, setting.target) for _, table in sides],
        seed=this_round.seed,
        classifiers=ALL_CLASSIFIERS if setting.full else _LEARNERS,
        n_classes=this_round.real.n_states[setting.target],
    )
    members, others = scores
    rows: list[Row] = [
        {
            "classifier": name,
            "members": share,
            "others": others.accuracy[name],
            "advantage": share - others.accuracy[name],
        }
        for name, share in members.accuracy.items()
    ]
    values = {
        "accuracy_members": members.mean,
        "accuracy_others": others.mean,
        "advantage": members.mean - others.mean,
        "worst_advantage": _worst([row["advantage"] for row in rows]),
    }
    return Measured(values=values, rows=rows)


# ---- membership


def _membership(this_round: Round, play: Play, setting: Setting) -> Measured:
    """Measure nearest records, and how much nearer they are than those of a reference: of the holdout, who are not attacked."""
    sides = _sides(this_round)
    synthetic, *side_points = points(play.published, *(table for _, table in sides))
    distance = [nearest(side, synthetic) for side in side_points]
    numbers, *theirs = number_records(play.published, *(table for _, table in sides))
    copy_rates = [rate(int(np.isin(one, numbers).sum()), len(one)) for one in theirs]
    values = {"copied": copy_rates[0].share, "copied_of_others": copy_rates[1].share}
    rows = [
        _measure(f"record is published, of {side}", each) for (side, _), each in zip(sides, copy_rates, strict=True)
    ]
    plain = separation(distance[0], distance[1])
    values |= {"area": plain.area, "advantage": plain.advantage}
    reference = this_round.tested.rows(np.arange(this_round.others.n, this_round.tested.n))
    score: list[Floats] = [one.astype(np.float64) for one in distance]
    if reference.n:
        usual, *side_points = points(reference, *(table for _, table in sides))
        score = [
            np.log((one + 1) / (nearest(side, usual) + 1)) for one, side in zip(distance, side_points, strict=True)
        ]
    curve = separation(score[0], score[1])
    values |= {
        "relative_area": curve.area,
        "relative_advantage": curve.advantage,
        "membership": curve.true_positive_rate(FEW_FALSE_ALARMS),
    }
    for share in FALSE_ALARMS:
        if share * this_round.others.n >= 1:
            hit_rate = rate(curve.true_positive_rate(share) * this_round.members.n, this_round.members.n)
            rows.append(_measure(f"found where {share:.1%} of others are taken for members", hit_rate))
    values["nearer"] = _nearer(this_round, play, rows)
    return Measured(values=values, rows=rows)


def _measure(what: str, measured_rate: Rate) -> Row:
    return {
        "what": what,
        "share": measured_rate.share,
        "low": measured_rate.value - measured_rate.error,
        "high": measured_rate.value + measured_rate.error,
    }


def _nearer(this_round: Round, play: Play, rows: list[Row]) -> float:
    """Return the distance to the closest record: published records nearer to members than to as many others."""
    n = min(this_round.real.n, this_round.tested.n)
    records, members, others = points(
        play.table.rows(np.arange(play.table.n)[:_NEARER]),
        this_round.real.rows(np.arange(n)),
        this_round.tested.rows(np.arange(n)),
    )
    share = nearer(nearest(records, members), nearest(records, others))
    rows.append(_measure("published records nearer to members than to others", rate(share * records.n, records.n)))
    return share


# ---- linkability


def _linkability(this_round: Round, play: Play, setting: Setting) -> Measured:
    sides = _sides(this_round)
    synthetic, *side_points = points(play.published, *(table for _, table in sides))
    rows: list[Row] = []
    for name, one_side in _splits(this_round.real.names, setting):
        rates = [rate(int(find_links(side, synthetic, one_side).sum()), side.n) for side in side_points]
        rows.append({"one_side": name, "columns": len(one_side), **_beside("linked", rates)})
    values = {
        "linked": float(rows[0]["linked"]),
        "linked_of_others": float(rows[0]["linked_of_others"]),
        "linkability": _worst([row["risk"] for row in rows]),
    }
    return Measured(values=values, rows=rows)


def _splits(names: Sequence[str], setting: Setting) -> list[tuple[str, list[int]]]:
    """Return columns of one side: each party's against those of all others; without parties the first half against the second."""
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


def _singling_out(this_round: Round, play: Play, setting: Setting) -> Measured:
    """Measure conditions from the published records, on as many members as others.

    Few conditions hold for one person of few, so that these are not only the attacked ones of a round, and rounds share people.
    """
    n = min(this_round.real.n, this_round.tested.n)
    people = [table.rows(np.arange(n)) for table in (this_round.real, this_round.tested)]
    synthetic = _drop_impossible(
        people[0] if play.kind == "baseline" else play.published, _factors(setting, this_round.real.names)
    )
    generator = this_round.generator(21)
    rows: list[Row] = []
    values: dict[str, float] = {}
    both = np.zeros((len(people), 2), dtype=np.int64)
    for what, conditions in (
        ("one column", singling_out.of_one_column(synthetic, _CONDITIONS, generator=generator)),
        (f"{singling_out.COLUMNS} columns", singling_out.of_several(synthetic, _CONDITIONS, generator=generator)),
    ):
        counts = [int((conditions.holding(table) == 1).sum()) for table in people]
        row = {
            "on": what,
            "conditions": len(conditions),
            **_beside("single", [rate(count, len(conditions)) for count in counts]),
        }
        rows.append(row)
        values |= {f"{key}_on_{what}".replace(" ", "_"): float(row[key]) for key in ("single", "risk")}
        both += [[count, len(conditions)] for count in counts]
    values["singling_out"] = risk(*(rate(*counts) for counts in both.tolist())).value
    return Measured(values=values, rows=rows)


def _drop_impossible(synthetic: CodedTable, factors: Sequence[Factor]) -> CodedTable:
    """Leave out records that the rules make impossible, which nobody can have; return all where all are impossible."""
    is_possible = np.ones(synthetic.n, dtype=np.bool_)
    for scope, compatible in factors:
        is_possible &= compatible[tuple(synthetic.codes[column] for column in scope)] > 0
    return synthetic.rows(np.flatnonzero(is_possible)) if is_possible.any() else synthetic


# ---- all


def _beside(what: str, rates: Sequence[Rate]) -> Row:
    """Put the shares of an attack on members and on others beside the risk and its interval."""
    excess_risk = risk(*rates)
    return {
        what: rates[0].share,
        f"{what}_of_others": rates[1].share,
        "risk": excess_risk.value,
        "low": excess_risk.low,
        "high": excess_risk.high,
    }


def _worst(values: Sequence[float | int | str]) -> float:
    """Return the largest number; NaN if there is none."""
    numbers = [float(value) for value in values if not math.isnan(float(value))]
    return max(numbers, default=math.nan)


_FLOOR: Final = "records of people who are not attacked"
_COPY: Final = "a copy of the attacked records"


def _define_figure(key: str, title: str, says: str) -> Asked:
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
            _define_figure(
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
            _define_figure(
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
        measure=_learn_target,
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
            _define_figure(
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
            _define_figure(
                "singling_out",
                "Conditions that single out",
                "Share of conditions taken from one published record that one person alone meets, beyond those that one alone of "
                "people meets whose records were not used.",
            ),
        ),
    ),
)
