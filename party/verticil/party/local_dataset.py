"""The site's own records as one study sees them: who they are, what their codes are, and what releasing them means.

A `LocalDataset` is made from the local tables in one pass, batch by batch, and keeps no id: of each record it has the tag that
sticky noise needs, the pseudonym (or what the mode of linkage has in its place) that linkage needs, and one code for each
variable. They are in memory or, of very many people, in a file without a name in the state directory (`dataset.people`). What
is released of a record is one code of each unit: of a compound the code of its combination. Every value has one: where the
study declares none for it, a category that is drawn for the record (`verticil.party.dataset.undeclared_values`).

The flag of a rule stands in no table: it is written from the codes of its rule's columns, and what it means is in its codebook.

A party may have several data sets. A variable belongs to the one that names it in a ``columns`` rule, else to the only one
whose table has such a column; the party's people in a study are those who are in all the data sets that the study uses. The
fingerprint of a unit is that of its whole data set, whoever is at the other parties; the columns of a compound are therefore all
in one data set.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from verticil.party.config import PartyConfig
from verticil.party.dataset import blinding, perturb, pseudonyms
from verticil.party.dataset import undeclared_values as substitutes
from verticil.party.dataset.column_draws import Column, ColumnDraw
from verticil.party.dataset.compound_codes import Compound
from verticil.party.dataset.gathered_records import (
    MEMORY_ROWS,
    ROW_NUMBER_BYTES,
    Gathering,
    IdSpool,
    UnitCodes,
)
from verticil.party.dataset.joined_people import People, join_people
from verticil.party.dataset.local_person_keys import KEY_BYTES, PeopleOfTable, PersonMacs, TableKeys
from verticil.party.dataset.macs import Macs
from verticil.party.dataset.order_commitment import order_key, order_tree
from verticil.party.dataset.people_rows import for_study, header
from verticil.party.dataset.source import Batch, read_batches
from verticil.party.dataset.source_fingerprints import SourceFingerprints
from verticil.party.dataset.sources.source_table import DatasetRule, with_properties
from verticil.party.related_people import SlotColumn, read_related, slot_columns
from verticil.party.storage.secret import SiteSecret, secret_id
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.federation.alignment.merkle import Tree
from verticil.shared.numerics.knowledge.columns import flag_codes, narrow_knowledge
from verticil.shared.numerics.knowledge.rules import Flag, Knowledge
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.privacy.events import column_reader
from verticil.shared.privacy.figures import column_event
from verticil.shared.storage.database import disk_faults
from verticil.shared.study.document import Study
from verticil.shared.study.profiled_columns import measure, study_to_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a variable comes from at this site.

    Attributes:
        dataset: its data set.
        account: the name of the people's account in the ledger; see `verticil.party.limits.same_people`.
        source: the local column; of a flag those that it is written from.
        recode, written: see `perturb.codebook_digest`; of a flag its conditions stand in `written`.
        flag: whether it is one, or of a slot, and so no column of the table of people.
    """

    dataset: str
    account: str
    source: str
    recode: Mapping[str, str]
    written: str = "plain"
    flag: bool = False


NameOfDraws = Callable[[str, Sequence[str], bytes], str]
"""Of an account, local columns and a codebook: the name under which these were drawn before, or that of the account."""


def _under_its_account(account: str, _sources: Sequence[str], _codebook: bytes) -> str:
    return account


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalDataset:
    """This party's people in one study, by ascending pseudonym or seed; with ``order-commitment`` in the order of the (first)
    table. Secret.

    Attributes:
        tags: (n, 14), uint8; see `perturb.record_tags`.
        keys: (n, 16), uint8, by which the site recognises each person in every study; see `person_keys.PersonMacs.of`.
        tables: data set -> the keys of everybody in its table.
        codes: variable -> (n,), uint8 or uint16.
        fingerprints: index of unit -> SHA-256 of its data (whole data set).
        source_fingerprints: index of unit -> that of its local columns (`verticil.party.dataset.source_fingerprints`).
        pseudonyms: (n, 16), uint8; none in another mode of linkage than ``keyed-hash``.
        seeds: (n, 32), uint8, of linkage ``dh-psi``; see `verticil.party.dataset.blinding`. Else none.
        tree: of linkage ``order-commitment``; None in another mode, or without people.
        n_rows: of the table, with the rows that were left out; of several data sets the fewest. No value of the table is in it.
        profiles: noisy counts of each column whose bins are measured; its codes are those of the bins that follow.
    """

    tags: NDArray[np.uint8] = field(repr=False)
    keys: NDArray[np.uint8] = field(repr=False)
    tables: Mapping[str, PeopleOfTable] = field(repr=False)
    codes: Mapping[str, Codes] = field(repr=False)
    fingerprints: Mapping[int, bytes] = field(repr=False)
    source_fingerprints: Mapping[int, bytes] = field(repr=False)
    pseudonyms: NDArray[np.uint8] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)
    tree: Tree | None = field(repr=False)
    n_rows: int
    profiles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def renumber(self, before: Study, after: Study, party: str) -> LocalDataset:
        """Return the same people for a study with this party's units at other positions, such as a sub-model."""
        if not after.left_out:
            return self
        places = list(zip(before.units_of(party), after.units_of(party), strict=True))
        return replace(
            self,
            fingerprints={new: self.fingerprints[old] for old, new in places},
            source_fingerprints={new: self.source_fingerprints[old] for old, new in places},
        )

    @property
    def row_order(self) -> Tree:
        """The tree over the ids in the table's order; with ``order-commitment``, of people that there are."""
        if self.tree is None:
            raise ValueError("there is no tree over the rows: this is another mode of linkage, or there are no people")
        return self.tree

    @property
    def n_records(self) -> int:
        """The number of people."""
        return len(self.tags)

    @property
    def everyone(self) -> NDArray[np.int64]:
        """All records, in their order: 0, 1, 2, .."""
        return np.arange(self.n_records, dtype=np.int64)


def origins(config: PartyConfig, study: Study) -> dict[str, Origin]:
    """Return where each of this party's variables comes from. Read the headers of the tables when there are several data
    sets.

    Raises:
        Misuse: CONFIG_INVALID, no data set has the variable, or several have it; or columns of one compound are in several.
        Refusal: POLICY_REFUSED, a variable is the column that names the person: randomized or not, it is never released.
        DataFault: a table cannot be read.
    """
    slots = slot_columns(study.related, study.schema, config.datasets, config.name, where=config.path.name)
    own = [study.schema[position] for position in study.schema.owned_by(config.name)]
    own = [variable for variable in own if variable.name not in slots]
    column_origins = _column_origins(
        config, study, [variable for variable in own if flag_of(study, variable.name) is None]
    )
    for name, slot in slots.items():
        column_origins[name] = _slot_origin(config, slot)
    for variable in own:
        if (flag := flag_of(study, variable.name)) is not None:
            column_origins[variable.name] = _flag_origin(config, study, flag, column_origins)
    _check_compounds(config, study, column_origins)
    return column_origins


def _column_origins(config: PartyConfig, study: Study, own: Sequence[Variable]) -> dict[str, Origin]:
    if len(config.datasets) == 1:
        ((name, rule),) = config.datasets.items()
        account = config.policy.same_people.account(name)
        return {variable.name: _origin(name, account, rule, study, variable) for variable in own}
    headers: dict[str, tuple[str, ...]] = {}
    column_origins: dict[str, Origin] = {}
    for variable in own:
        homes = [name for name, rule in config.datasets.items() if variable.name in rule.columns]
        if not homes:
            headers = headers or {name: header(rule) for name, rule in config.datasets.items()}
            homes = [name for name, columns in headers.items() if variable.name in columns]
        if len(homes) != 1:
            where = "none of them has it" if not homes else f"{', '.join(homes)} have it"
            raise Misuse(
                "CONFIG_INVALID",
                f"{config.path.name}: variable '{variable.name}': expected one of {len(config.datasets)} data sets, {where}",
                hint=f"name it in [dataset.NAME.columns.{variable.name}]",
            )
        home, account = homes[0], config.policy.same_people.account(homes[0])
        column_origins[variable.name] = _origin(home, account, config.datasets[home], study, variable)
    return column_origins


def _slot_origin(config: PartyConfig, slot: SlotColumn) -> Origin:
    """Return the origin of a slot's column, which is no column of the table of people.

    Raises:
        Refusal: POLICY_REFUSED, it is the column that names the person.
    """
    if slot.column == config.datasets[slot.dataset].tables[slot.table.name].id:
        raise _is_the_id(f"related table '{slot.table.name}'", slot.dataset)
    account = config.policy.same_people.account(slot.dataset)
    return Origin(
        dataset=slot.dataset, account=account, source=slot.source, recode=slot.recode, written=slot.written, flag=True
    )


def _flag_origin(config: PartyConfig, study: Study, flag: Flag, places: Mapping[str, Origin]) -> Origin:
    """Return the origin of a flag: that of the columns that it is written from."""
    own = {condition.variable: places[condition.variable] for condition in flag.when}
    if len({place.dataset for place in own.values()}) > 1:
        where = ", ".join(f"'{name}' is in data set '{place.dataset}'" for name, place in own.items())
        raise Misuse(
            "CONFIG_INVALID",
            f"{config.path.name}: the flag '{flag.variable}' is written from several columns: {where}, expected one data set",
            hint=f"name one data set for them in [dataset.NAME.columns.{flag.when[0].variable}], or join the tables",
        )
    columns = {name: (place.source, place.recode, place.written) for name, place in own.items()}
    source, meaning = flag_meaning(study, flag, columns)
    first = next(iter(own.values()))
    return Origin(dataset=first.dataset, account=first.account, source=source, recode={}, written=meaning, flag=True)


def flag_of(study: Study, variable: str) -> Flag | None:
    """Return the flag that a variable is; None: it is a column of a table."""
    return None if study.knowledge is None else study.knowledge.flag(variable)


def flag_meaning(
    study: Study, flag: Flag, columns: Mapping[str, tuple[str, Mapping[str, str], str]]
) -> tuple[str, str]:
    """Return the local columns of a flag, in words, and a text of its meaning: its conditions, and their columns' codebooks.

    Args:
        study: of the flag.
        flag: of a rule.
        columns: of each variable of its conditions the local column, its recode, and how its numbers are written.
    """
    digest = hashlib.sha256()
    for condition in flag.when:
        _, recode, style = columns[condition.variable]
        variable = study.schema[study.schema.index(condition.variable)]
        digest.update(perturb.codebook_digest(variable, recode, style))
        digest.update(bytes(label in condition.values for label in variable.labels))
    names = ", ".join(columns[condition.variable][0] for condition in flag.when)
    return f"flag of {names}", f"flag {digest.hexdigest()}"


def stated_of(study: Study, columns: Collection[str]) -> Knowledge | None:
    """Return what a study states of some columns of a table, which has no flags."""
    return study.knowledge and narrow_knowledge(study.knowledge, study.schema, columns)


def with_flags(study: Study, codes: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of columns with those of every flag whose columns are there."""
    flags = () if study.knowledge is None else study.knowledge.flags
    variables = {variable.name: variable for variable in study.schema.variables}
    flag_columns = {
        flag.variable: flag_codes(flag, variables, codes)
        for flag in flags
        if all(condition.variable in codes for condition in flag.when)
    }
    return {**codes, **flag_columns}


def _check_compounds(config: PartyConfig, study: Study, places: Mapping[str, Origin]) -> None:
    for index in study.units_of(config.name):
        names = study.units[index].variables
        if len({places[name].dataset for name in names}) > 1:
            where = ", ".join(f"'{name}' is in data set '{places[name].dataset}'" for name in names)
            raise Misuse(
                "CONFIG_INVALID",
                f"{config.path.name}: the columns {', '.join(names)} are randomized in one draw: {where},"
                " expected all of them in one data set",
                hint=f"name one data set for them in [dataset.NAME.columns.{names[0]}], or join the tables",
            )


def compounds_of(study: Study, party: str) -> dict[int, Compound]:
    """Return the compounds among a party's units, by index."""
    return {
        index: Compound(
            variables=unit.variables,
            n_states=tuple(study.schema[study.schema.index(name)].n_states for name in unit.variables),
            impossible=unit.impossible,
        )
        for index in study.units_of(party)
        if (unit := study.units[index]).is_compound
    }


def unit_codes(study: Study, index: int, codes: Mapping[str, Codes]) -> Codes:
    """Return the true codes of one unit: those of its column, or of the combinations of its columns.

    Args:
        study: the study.
        index: of the unit.
        codes: variable -> (n,), uint8 or uint16.

    Returns:
        (n,), uint8 or uint16.

    Raises:
        ValueError: an impossible combination; `read_people` leaves none.
    """
    unit = study.units[index]
    if unit.is_compound:
        return compounds_of(study, unit.owner)[index].codes(codes)
    return codes[unit.variables[0]]


def columns_of(config: PartyConfig, study: Study) -> dict[str, Column]:
    """Return the local column of each of this party's variables; raises as `origins`."""
    places = origins(config, study)
    return {variable: Column(dataset=place.dataset, source=place.source) for variable, place in places.items()}


def _origin(dataset: str, account: str, rule: DatasetRule, study: Study, variable: Variable) -> Origin:
    column = with_properties(rule, study.knowledge, (variable.name,)).column(variable.name)
    if column.source == rule.id:
        raise _is_the_id(f"variable '{variable.name}'", dataset)
    written = rule.meaning_of(column)
    return Origin(dataset=dataset, account=account, source=column.source, recode=column.recode, written=written)


def read_people(
    config: PartyConfig,
    study: Study,
    *,
    site_secret: SiteSecret,
    linked_by: Macs | None,
    name_of_draws: NameOfDraws = _under_its_account,
    progress: Callable[[int], None] = lambda rows: None,
) -> People:
    """Read this party's tables for a study, batch by batch.

    Args:
        config: where the tables are, and the folder for what does not fit into memory.
        study: the proposal.
        site_secret: of this site.
        linked_by: what makes the links; None: they are the numbers of the rows.
        name_of_draws: the name by which columns were drawn before; see `Ledger.name_of_draws`.
        progress: called with the number of rows that are read, of all tables.

    Raises:
        DataFault: a table is no readable file or lacks a column (see `read_records`); DISK_FULL, in the state directory.
        Misuse: CONFIG_INVALID.
        PeerFault: PARTY_UNKNOWN, the party has no variable in the study.
    """
    places = origins(config, study)
    slots = slot_columns(study.related, study.schema, config.datasets, config.name, where=config.path.name)
    compounds = compounds_of(study, config.name)
    people: People | None = None
    n_before = 0
    for dataset in dict.fromkeys(place.dataset for place in places.values()):
        there = [variable for variable in study.schema.variables if _is_in(variable, places, dataset)]
        variables = [variable for variable in there if not places[variable.name].flag]
        of_dataset = {name: slot for name, slot in slots.items() if slot.dataset == dataset}
        there = [variable for variable in there if variable.name not in of_dataset]
        units = [i for i in study.units_of(config.name) if places[study.units[i].variables[0]].dataset == dataset]
        of_slots = [index for index in units if study.units[index].variables[0] in of_dataset]
        units = [index for index in units if index not in of_slots]
        rule = with_properties(config.datasets[dataset], study.knowledge, [variable.name for variable in variables])
        rule = for_study(rule, dataset, study.linkage.normalise, site_secret=site_secret.value)
        substitute = _substitution(
            study, variables, units, places, compounds, site_secret=site_secret.value, name_of_draws=name_of_draws
        )
        here = _read_table(
            rule,
            variables,
            there,
            {index: functools.partial(unit_codes, study, index) for index in units},
            substitute,
            dataset=dataset,
            sources={index: _sources_of(study, index, places) for index in units},
            normalise=study.linkage.normalise,
            tags=Macs(site_secret.tag_key, size=perturb.TAG_BYTES),
            person_macs=PersonMacs(site_secret.value),
            source_fingerprints=SourceFingerprints(site_secret.value),
            linked_by=linked_by,
            folder=config.state_directory,
            progress=functools.partial(_behind, n_before, progress),
        )
        n_before += here.n_rows
        if of_dataset:
            related = read_related(
                of_dataset,
                rule.tables,
                study.schema,
                here.tags,
                normalise=study.linkage.normalise,
                site_secret=site_secret.value,
                tag_macs=Macs(site_secret.tag_key, size=perturb.TAG_BYTES),
                key_of=functools.partial(_key_of_slot, study, places, site_secret.value, name_of_draws),
                folder=config.state_directory,
            )
            here = here.with_related(
                related.codes,
                {index: study.units[index].variables[0] for index in of_slots},
                fingerprints=related.fingerprints,
                source_fingerprints=related.source_fingerprints,
            )
        people = here if people is None else join_people(people, here, config.state_directory)
    if people is None:
        raise PeerFault(
            "PARTY_UNKNOWN",
            f"study '{study.id}': party '{config.name}' is not in it, expected one of {', '.join(study.parties)}",
            hint="name in party.toml must be the party's name in the study",
        )
    return people


def _key_of_slot(
    study: Study, places: Mapping[str, Origin], site_secret: bytes, name_of_draws: NameOfDraws, name: str
) -> bytes:
    """Return the key by which categories of a slot's column are drawn where none is declared."""
    place, codebook = places[name], _unit_codebook(study, study.unit_of(name), places)
    dataset = name_of_draws(place.account, [place.source], codebook)
    return substitutes.substitute_key(
        site_secret, dataset=dataset, source_columns=[place.source], codebook_digest=codebook
    )


def _sources_of(study: Study, index: int, places: Mapping[str, Origin]) -> tuple[str, ...]:
    """Return the local columns that a unit is read from; of a flag those that it is written from."""
    names: list[str] = []
    for name in study.units[index].variables:
        flag = flag_of(study, name)
        of = [name] if flag is None else [condition.variable for condition in flag.when]
        names += [places[variable].source for variable in of]
    return tuple(names)


def _behind(before: int, progress: Callable[[int], None], rows: int) -> None:
    progress(before + rows)


def _read_table(
    rule: DatasetRule,
    variables: Sequence[Variable],
    code_variables: Sequence[Variable],
    units: Mapping[int, UnitCodes],
    substitute: Callable[[Batch, NDArray[np.uint8]], Mapping[str, Codes]],
    *,
    dataset: str,
    sources: Mapping[int, Sequence[str]],
    normalise: Sequence[str],
    tags: Macs,
    person_macs: PersonMacs,
    source_fingerprints: SourceFingerprints,
    linked_by: Macs | None,
    folder: Path,
    progress: Callable[[int], None],
) -> People:
    """Read the people of one table: `variables` are read, and `code_variables` are what `substitute` makes of their codes."""
    gathering = Gathering(
        folder,
        link_bytes=ROW_NUMBER_BYTES if linked_by is None else linked_by.size,
        columns={variable.name: np.dtype(variable.code_dtype).itemsize for variable in code_variables},
        memory_rows=MEMORY_ROWS,
    )
    spool = IdSpool(folder) if linked_by is None else None
    everybody = TableKeys(folder, memory_people=MEMORY_ROWS)
    n_rows = n_read = 0
    for batch in read_batches(rule, variables):
        n_rows += batch.n_rows
        progress(n_rows)
        if not batch.index.size:
            continue
        ids = pseudonyms.packed_ids(batch.ids, normalise)
        person_tags = tags.of(ids)[batch.index]
        pairs, are_people = person_macs.of(batch.ids)
        if linked_by is None:
            numbers = np.arange(n_read, n_read + len(batch.index), dtype=np.uint64)
            links = numbers.astype(">u8").view(np.uint8).reshape(-1, ROW_NUMBER_BYTES)
        else:
            links = linked_by.of(ids)[batch.index]
        n_read += len(batch.index)
        codes = substitute(batch, person_tags)
        with disk_faults(folder):
            if spool is not None:
                spool.take(ids, batch.index)
            gathering.take(person_tags, links, pairs[batch.index], codes, ~ids.empty[batch.index])
            everybody.take(pairs[are_people])
        source_fingerprints.take(pairs[batch.index, :KEY_BYTES], batch.texts, are_people[batch.index])
    with disk_faults(folder):
        table_people = gathering.finish(units)
        people = everybody.finish()
    return People(
        tags=table_people.tags,
        links=table_people.links,
        keys=table_people.keys,
        tables={dataset: people},
        codes=table_people.codes,
        fingerprints=table_people.fingerprints,
        source_fingerprints={index: source_fingerprints.of(names) for index, names in sources.items()},
        n_rows=n_rows,
        ids=spool,
    )


def _substitution(
    study: Study,
    variables: Sequence[Variable],
    units: Sequence[int],
    places: Mapping[str, Origin],
    compounds: Mapping[int, Compound],
    *,
    site_secret: bytes,
    name_of_draws: NameOfDraws,
) -> Callable[[Batch, NDArray[np.uint8]], Mapping[str, Codes]]:
    """Return what puts a random category in place of each undeclared value of a batch, and a random combination of each
    impossible one.

    Flags are written between the two.
    """

    def key_of(index: int, names: Sequence[str], codebook_digest: bytes) -> bytes:
        members = [places[name] for name in study.units[index].variables]
        codebook = _unit_codebook(study, index, places)
        return substitutes.substitute_key(
            site_secret,
            dataset=name_of_draws(members[0].account, [place.source for place in members], codebook),
            source_columns=[places[name].source for name in names],
            codebook_digest=codebook_digest,
        )

    unit_of = {name: index for index in units for name in study.units[index].variables}
    single: list[tuple[Variable, bytes]] = []
    for variable in variables:
        if variable.other is None:
            place = places[variable.name]
            digest = perturb.codebook_digest(variable, place.recode, place.written)
            single.append((variable, key_of(unit_of[variable.name], [variable.name], digest)))
    several = [
        (compounds[index], key_of(index, study.units[index].variables, _unit_codebook(study, index, places)))
        for index in units
        if study.units[index].impossible
    ]

    def substitute(batch: Batch, tags: NDArray[np.uint8]) -> Mapping[str, Codes]:
        codes = dict(batch.codes)
        for variable, key in single:
            random_codes = substitutes.draw(key, tags, variable.n_states)
            codes[variable.name] = np.where(batch.undeclared[variable.name], random_codes, codes[variable.name])
        codes = with_flags(study, codes)
        for compound, key in several:
            codes |= compound.possible(codes, substitutes.draw(key, tags, compound.n_domain))
        return codes

    return substitute


def read_holding(
    config: PartyConfig,
    study: Study,
    *,
    proposal_digest: bytes,
    site_secret: SiteSecret,
    linkage_key: bytes,
    name_of_draws: NameOfDraws = _under_its_account,
    progress: Callable[[int], None] = lambda rows: None,
) -> LocalDataset:
    """Read this party's tables for a study, and what linkage needs of them.

    Args:
        config: where the tables are.
        study: the proposal.
        proposal_digest: of it; the context of pseudonyms.
        site_secret: of this site.
        linkage_key: shared by the parties.
        name_of_draws, progress: see `read_people`.

    Raises:
        DataFault, Misuse, PeerFault: as `read_people`.
    """
    mode = study.linkage.mode
    linked_by = None
    if mode == "dh-psi":
        linked_by = blinding.seed_macs(linkage_key, proposal_digest)
    elif mode != "order-commitment":
        linked_by = pseudonyms.pseudonym_macs(linkage_key, pseudonyms.linkage_context(proposal_digest))
    read_by = study_to_read(study, config.name)
    people = read_people(
        config, read_by, site_secret=site_secret, linked_by=linked_by, name_of_draws=name_of_draws, progress=progress
    )
    digest, secret = proposal_digest, site_secret.value
    codes, profiles = measure(
        study, config.name, people.codes, people.fingerprints, proposal_digest=digest, site_secret=secret
    )
    tree: Tree | None = None
    if mode == "order-commitment" and len(people.tags):
        with disk_faults(config.state_directory):
            tree = order_tree(order_key(linkage_key, proposal_digest), people.names())
    none = np.empty((0, pseudonyms.PSEUDONYM_BYTES), dtype=np.uint8)
    return LocalDataset(
        tags=people.tags,
        keys=people.keys,
        tables=people.tables,
        codes=codes,
        fingerprints=people.fingerprints,
        source_fingerprints=people.source_fingerprints,
        pseudonyms=none if linked_by is None or mode == "dh-psi" else people.links,
        seeds=people.links if mode == "dh-psi" else np.empty((0, blinding.TOKEN_BYTES), dtype=np.uint8),
        tree=tree,
        n_rows=people.n_rows,
        profiles=profiles,
    )


def _is_in(variable: Variable, places: Mapping[str, Origin], dataset: str) -> bool:
    return variable.name in places and places[variable.name].dataset == dataset


def column_draw_of(
    study: Study,
    index: int,
    *,
    places: Mapping[str, Origin],
    fingerprint: bytes,
    site_secret: bytes,
    source_fingerprint: bytes = b"",
) -> ColumnDraw:
    """Return what releasing one unit means for the ledger, under the name of the people's account (`Ledger.as_drawn`).

    Args:
        study: with this party's declaration.
        index: of the unit.
        places: see `origins`.
        fingerprint: of the unit's data.
        site_secret: of this site.
        source_fingerprint: of its local columns; empty: not known.
    """
    unit = study.units[index]
    columns = [places[name] for name in unit.variables]
    return ColumnDraw(
        variables=unit.variables,
        dataset=columns[0].account,
        sources=tuple(place.source for place in columns),
        codebook_digest=_unit_codebook(study, index, places),
        transition_digest=unit.transition.digest(),
        secret_id=secret_id(site_secret),
        fingerprint=fingerprint,
        source_fingerprint=source_fingerprint,
        event=column_event(unit.transition, column_reader(study)),
    )


def _unit_codebook(study: Study, index: int, places: Mapping[str, Origin]) -> bytes:
    """Return the digest of what decides a record's code in a unit: `perturb.codebook_digest`, or
    `perturb.compound_digest`.
    """
    unit = study.units[index]
    codebooks = [
        perturb.codebook_digest(study.schema[study.schema.index(name)], places[name].recode, places[name].written)
        for name in unit.variables
    ]
    return perturb.compound_digest(codebooks, unit.impossible) if unit.is_compound else codebooks[0]


def column_draws_of(
    config: PartyConfig, study: Study, holding: LocalDataset, *, site_secret: bytes
) -> dict[int, ColumnDraw]:
    """`column_draw_of` each of this party's units.

    Args:
        config: where the tables are.
        study: with this party's declaration.
        holding: the data.
        site_secret: of this site.

    Raises:
        Misuse, Refusal, DataFault: as `origins`.
    """
    places = origins(config, study)
    return {
        index: column_draw_of(
            study,
            index,
            places=places,
            fingerprint=holding.fingerprints[index],
            site_secret=site_secret,
            source_fingerprint=holding.source_fingerprints[index],
        )
        for index in study.units_of(config.name)
    }


def _is_the_id(what: str, dataset: str) -> Refusal:
    return Refusal(
        "POLICY_REFUSED",
        f"{what}: its column is the id of data set '{dataset}'",
        hint="the column that names the person is never released",
    )
