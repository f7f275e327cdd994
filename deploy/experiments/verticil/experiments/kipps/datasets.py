"""The tables, each with its public bins and with what is known of it: Adult, the diabetes survey, network traffic.

Of the paper's five tables two are public and here (Adult, the CDC's survey); its opioid prescriptions are not public, and its
recordings of a home network are not published: in their place a simulated table of the same columns, which is no data and is
marked so everywhere. UNSW-NB15 is read from a file that the user has.

Rules of Adult: a husband is male, a wife female, both are married; who has no (known) work has no known occupation; soldiers work
for the government; the level of education gives its number. The paper's "a higher degree earns more" is a tendency and no rule.
Nothing hard is known of the survey; three published probabilities are (CDC, press release of July 18, 2017, on the National
Diabetes Statistics Report: of those aged 18 to 44, 45 to 64, 65 and older 4, 17 and 25 per cent have diabetes). Rules of traffic
are those of the protocols; the port follows from the service.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import gzip
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from verticil.evaluate.measures.coded import CodedTable
from verticil.experiments.hittmeir import datasets as hittmeir
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.knowledge.columns import Columns, columns
from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Rule, SoftRule
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import StructureRule, Study
from verticil.shared.study.typed_variables import bin_labels
from verticil.shared.study.unit import Unit

OWNER: Final = "owner"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataSet:
    """A table with its bins and its rules.

    Attributes:
        name: for people.
        schema: the variables that are generated where the rules are known.
        knowledge: what is stated of them; the columns that follow from others are its own.
        target: what classifiers and regressions predict, of two categories.
        sensitive: what the attribute attack is after.
        frame: the records as the owner has them: texts and numbers of all columns.
        simulated: it is no data.
    """

    name: str
    schema: Schema
    knowledge: Knowledge
    target: str
    sensitive: str
    frame: pd.DataFrame
    simulated: bool = False

    @property
    def columns(self) -> Columns:
        """All columns, and how those that follow from others do."""
        return columns(self.knowledge, self.schema)

    @property
    def everything(self) -> Schema:
        """All columns as variables of their own: for those who know no rules."""
        return self.columns.published

    def coded(self, frame: pd.DataFrame) -> CodedTable:
        """Some records of all columns in codes, numbers beside.

        Raises:
            DataFault: DATA_CATEGORY_UNSEEN, a column has values that are not declared.
        """
        whole = self.everything
        texts = {name: frame[name].astype(str).to_numpy(dtype=object) for name in whole.names}
        return CodedTable(
            names=whole.names,
            codes=tuple(hittmeir.encoded(whole, texts)),
            n_states=whole.n_states,
            values=tuple(
                None if variable.bins is None else frame[variable.name].to_numpy(dtype=np.float64)
                for variable in whole.variables
            ),
        )

    def study(self, *, known: bool) -> Study:
        """The owner's study, with the rules or without.

        Args:
            known: whether the rules are stated; else every column is a variable of its own.
        """
        schema = self.schema if known else self.everything
        return Study(
            id="kipps", title=self.name, purpose="comparison", model="central", expires=dt.date(2099, 12, 31),
            parties=(OWNER,), schema=schema, structure=StructureRule(method="auto", score="auto"),
            units=tuple(
                Unit(variables=(v.name,), owner=OWNER, scheme="none", transition=quantize(identity(v.n_states)))
                for v in schema.variables
            ),
            knowledge=self.knowledge if known else None,
        )  # fmt: skip

    def split(self, n_members: int, n_others: int, *, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Records at random: those that are synthesized, others of the same people's kind that are not, and as many again.

        Args:
            n_members: of the first, at most two thirds of all.
            n_others: of each of the others, at most a sixth of all.
            seed: of the order.
        """
        order = np.random.default_rng([seed, 0xD]).permutation(len(self.frame))
        members, others = min(n_members, 2 * len(order) // 3), min(n_others, len(order) // 6)
        cuts = (0, members, members + others, members + 2 * others)
        first, second, third = (
            self.frame.iloc[order[start:end]].reset_index(drop=True) for start, end in itertools.pairwise(cuts)
        )
        return first, second, third


_LEVELS: Final = (
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college", "Assoc-voc",
    "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
)  # fmt: skip
"""Of education in Adult, by education-num from 1; the shipped table has the number alone."""
_MARRIED: Final = ("Married-civ-spouse", "Married-AF-spouse")


def adult() -> DataSet:
    """UCI Adult's training part, 32,561 people of 14 columns."""
    data = hittmeir.adult()
    frame = pd.DataFrame(dict(data.train))
    number = "education-num"
    place = data.coarse.index(number)
    numbers = _numbers(number, tuple(range(1, 18)))
    frame.insert(place, "education", [_LEVELS[int(value) - 1] for value in frame[number]])
    for variable in data.coarse.variables:
        if variable.bins is not None:
            frame[variable.name] = frame[variable.name].astype(np.int64)
    variables = [dataclasses.replace(variable, owner=OWNER) for variable in data.coarse.variables]
    variables[place] = _categories("education", _LEVELS)
    schema = Schema(variables=tuple(variables))
    rules = _Rules(schema)
    knowledge = Knowledge(
        rules=(
            rules.implies("husband", ("relationship", "Husband"), ("sex", "Male")),
            rules.implies("wife", ("relationship", "Wife"), ("sex", "Female")),
            rules.implies("spouse", ("relationship", "Husband", "Wife"), ("marital-status", *_MARRIED)),
            rules.implies("no work", ("workclass", "unknown", "Never-worked"), ("occupation", "unknown")),
            rules.implies("army", ("occupation", "Armed-Forces"), ("workclass", "Federal-gov")),
        ),
        functions=(
            Function(
                name="years of education",
                variable=numbers,
                position=place + 1,
                of=("education",),
                values=tuple(zip(_LEVELS, numbers.labels, strict=True)),
            ),
        ),
    )
    return DataSet(
        name="Adult", schema=schema, knowledge=knowledge, target="income", sensitive="occupation", frame=frame
    )


_SURVEY_NUMBERS: Final = {
    "BMI": (12, 18.5, 25, 30, 35, 40, 100),
    "MentHlth": (0, 1, 6, 14, 30, 31),
    "PhysHlth": (0, 1, 6, 14, 30, 31),
}
_HAS_DIABETES: Final = (
    ("18 to 44", range(1, 6), 0.04),
    ("45 to 64", range(6, 10), 0.17),
    ("65 and older", range(10, 14), 0.25),
)
"""Age groups of the survey, and the published share of those who have diabetes."""


def diabetes() -> DataSet:
    """The CDC's survey of 2015, every eighth record: 31,710 people of 22 columns."""
    text = gzip.decompress((files("verticil.experiments.kipps") / "data" / "diabetes.csv.gz").read_bytes()).decode()
    header, *rows = csv.reader(io.StringIO(text))
    frame = pd.DataFrame(rows, columns=header)
    variables = [
        _numbers(name, _SURVEY_NUMBERS[name])
        if name in _SURVEY_NUMBERS
        else _categories(name, sorted(set(frame[name]), key=int))
        for name in header
    ]
    for name in _SURVEY_NUMBERS:
        frame[name] = frame[name].astype(np.int64)
    schema = Schema(variables=tuple(variables))
    target = "Diabetes_binary"
    soft = tuple(
        SoftRule(
            name=f"diabetes, {words}",
            when=(Condition(variable="Age", values=tuple(map(str, groups))),),
            then=(Condition(variable=target, values=("1",)),),
            probability=share,
        )
        for words, groups, share in _HAS_DIABETES
    )
    return DataSet(
        name="Diabetes survey",
        schema=schema,
        knowledge=Knowledge(soft=soft),
        target=target,
        sensitive="Income",
        frame=frame,
    )


_PORTS: Final = {
    "dns": "53",
    "ntp": "123",
    "https": "443",
    "mqtt": "8883",
    "http": "80",
    "telnet": "23",
    "ping": "none",
    "other": "dynamic",
}
_TRAFFIC_NUMBERS: Final = {
    "packets": (1, 2, 5, 10, 20, 50, 100, 1001),
    "bytes": (40, 100, 200, 500, 1000, 5000, 20000, 100000, 1500001),
    "milliseconds": (0, 1, 10, 50, 200, 1000, 5000, 60001),
}
_UNLIMITED: Final = 10.0**12


def traffic(*, rows: int = 30_000, seed: int = 1) -> DataSet:
    """SIMULATED traffic of a home network: a camera, a plug, a sensor, their hub and gateway, and one flow in seven an attack.

    What methods reach on it says nothing about real networks; the rules hold in it without exception.
    """
    draw = np.random.default_rng([seed, 0x7AFF1C])
    n = rows
    attack = np.where(draw.random(n) < 1 / 7, draw.integers(1, 4, n), 0)  # 1 scan, 2 flood, 3 guessed passwords
    device = draw.choice(["camera", "plug", "sensor", "hub"], n, p=(0.35, 0.2, 0.25, 0.2)).astype(object)
    service = np.empty(n, dtype=object)
    habits = {
        "camera": (0.2, 0.05, 0.55, 0.0, 0.1, 0.0, 0.02, 0.08),
        "plug": (0.2, 0.1, 0.1, 0.5, 0.05, 0.0, 0.02, 0.03),
        "sensor": (0.1, 0.1, 0.0, 0.7, 0.0, 0.0, 0.05, 0.05),
        "hub": (0.25, 0.05, 0.3, 0.2, 0.1, 0.02, 0.03, 0.05),
    }
    for name, shares in habits.items():
        mine = device == name
        service[mine] = draw.choice(list(_PORTS), int(mine.sum()), p=shares)
    device[attack == 1], device[attack == 3] = "outside", "outside"
    device[(attack == 2) & (draw.random(n) < 0.7)] = "plug"
    for kind, choices in (
        (1, ["http", "telnet", "https", "other"]),
        (2, ["other", "dns", "ping"]),
        (3, ["telnet", "http"]),
    ):
        service[attack == kind] = draw.choice(choices, int((attack == kind).sum()))
    peer = np.select(
        [np.isin(service, ["dns"]), service == "ntp", service == "mqtt"],
        ["gateway", draw.choice(["gateway", "outside"], n), draw.choice(["hub", "outside"], n, p=(0.7, 0.3))],
        draw.choice(["outside", "hub", "gateway"], n, p=(0.8, 0.15, 0.05)),
    ).astype(object)
    inward = np.isin(attack, [1, 3])
    peer[inward] = draw.choice(["camera", "plug", "sensor", "hub"], int(inward.sum()))
    protocol = np.select(
        [np.isin(service, ["dns", "ntp"]), service == "ping", service == "other"],
        ["UDP", "ICMP", np.where(attack == 1, "TCP", draw.choice(["TCP", "UDP"], n, p=(0.3, 0.7)))],
        "TCP",
    )
    ended = draw.choice(["complete", "reset", "half-open"], n, p=(0.93, 0.05, 0.02)).astype(object)
    ended[attack == 1] = draw.choice(["complete", "reset", "half-open"], int((attack == 1).sum()), p=(0.1, 0.5, 0.4))
    ended[attack == 3] = draw.choice(["complete", "reset", "half-open"], int((attack == 3).sum()), p=(0.4, 0.55, 0.05))
    ended[protocol != "TCP"] = "none"
    size = np.select([np.isin(service, ["dns", "ntp", "ping"]), service == "https"], [0.4, 3.0], 1.8)
    size = size + np.select([attack == 1, attack == 2, attack == 3], [-1.2, 2.5, 0.4], 0.0)
    packets = np.clip(np.rint(np.exp(draw.normal(size, 0.8))), 1, 1000).astype(np.int64)
    length = np.exp(draw.normal(np.where(service == "https", 6.0, 4.6), 0.5))
    octets = np.clip(np.rint(packets * np.clip(length, 40, 1500)), 40, 1_500_000).astype(np.int64)
    waits = np.exp(draw.normal(np.where(attack == 2, 0.0, 1.5) + 0.8 * np.log(packets), 1.0))
    frame = pd.DataFrame(
        {
            "device": device,
            "peer": peer,
            "service": service,
            "port": [_PORTS[str(name)] for name in service],
            "protocol": protocol.astype(object),
            "ended": ended,
            "packets": packets,
            "bytes": octets,
            "milliseconds": np.clip(np.rint(waits), 0, 60_000).astype(np.int64),
            "attack": np.where(attack > 0, "yes", "no").astype(object),
        }
    )
    named = {
        "device": ("camera", "plug", "sensor", "hub", "outside"),
        "peer": ("camera", "plug", "sensor", "hub", "gateway", "outside"),
        "service": tuple(_PORTS),
        "protocol": ("TCP", "UDP", "ICMP"),
        "ended": ("complete", "reset", "half-open", "none"),
        "attack": ("no", "yes"),
    }
    schema = Schema(
        variables=tuple(
            _numbers(name, _TRAFFIC_NUMBERS[name]) if name in _TRAFFIC_NUMBERS else _categories(name, named[name])
            for name in map(str, frame.columns)
            if name != "port"
        )
    )
    rules = _Rules(schema)
    knowledge = Knowledge(
        rules=(
            rules.implies("names and clocks over UDP", ("service", "dns", "ntp"), ("protocol", "UDP")),
            rules.implies("names are asked of the gateway", ("service", "dns"), ("peer", "gateway")),
            rules.implies("services over TCP", ("service", "https", "mqtt", "http", "telnet"), ("protocol", "TCP")),
            rules.implies("ping is ICMP", ("service", "ping"), ("protocol", "ICMP")),
            rules.implies("ICMP is ping", ("protocol", "ICMP"), ("service", "ping")),
            rules.implies("TCP ends", ("protocol", "TCP"), ("ended", "complete", "reset", "half-open")),
            rules.implies("others do not end", ("protocol", "UDP", "ICMP"), ("ended", "none")),
        ),
        functions=(
            Function(
                name="port of the service",
                variable=_categories("port", tuple(_PORTS.values())),
                position=3,
                of=("service",),
                values=tuple(_PORTS.items()),
            ),
        ),
    )
    return DataSet(
        name="Network traffic, simulated",
        schema=schema,
        knowledge=knowledge,
        target="attack",
        sensitive="device",
        frame=frame,
        simulated=True,
    )


_UNSW_OVER: Final = {
    "tcp": ("http", "smtp", "ftp", "ftp-data", "ssh", "pop3", "ssl", "irc"),
    "udp": ("dhcp", "snmp", "radius"),
}
_UNSW: Final[Mapping[str, tuple[str, ...] | tuple[float, ...]]] = {
    "dur": (0, 1e-5, 1e-3, 0.1, 0.5, 1, 5, 61),
    "proto": ("tcp", "udp", "arp", "ospf", "unas", "sctp", "any proto"),
    "service": ("-", "dns", *_UNSW_OVER["tcp"], *_UNSW_OVER["udp"], "any service"),
    "state": ("FIN", "INT", "CON", "REQ", "RST", "any state"),
    "spkts": (0, 2, 4, 10, 20, 50, 100, _UNLIMITED),
    "dpkts": (0, 1, 2, 4, 10, 20, 50, _UNLIMITED),
    "sbytes": (0, 100, 200, 500, 1000, 2000, 5000, _UNLIMITED),
    "dbytes": (0, 1, 200, 500, 1000, 5000, 20000, _UNLIMITED),
    "sttl": (0, 31, 32, 62, 63, 254, 255, 256),
    "dttl": (0, 1, 29, 30, 252, 253, 256),
    "label": ("0", "1"),
}
"""Columns of UNSW-NB15 with our bins, or with categories of its description, of which the last one is all others."""


def unsw(table: pd.DataFrame) -> DataSet:
    """UNSW-NB15 (N. Moustafa, J. Slay, MilCIS 2015): 11 columns of the published training or testing set.

    Args:
        table: texts, of all its columns or of these.

    Raises:
        DataFault: DATA_COLUMN_MISSING; DATA_CATEGORY_UNSEEN, a number is none.
    """
    if absent := [name for name in _UNSW if name not in table]:
        raise DataFault(
            "DATA_COLUMN_MISSING",
            f"the network table has no column {', '.join(map(repr, absent))}, expected UNSW-NB15's",
        )
    frame, variables = {}, []
    for name, declared in _UNSW.items():
        if isinstance(declared[0], str):
            labels = tuple(map(str, declared))
            other = labels[-1] if labels[-1].startswith("any ") else None
            variables.append(_categories(name, labels, other=other))
            frame[name] = table[name].where(table[name].isin(labels), other) if other else table[name]
        else:
            numbers = pd.to_numeric(table[name], errors="coerce")
            if numbers.isna().any():
                raise DataFault(
                    "DATA_CATEGORY_UNSEEN", f"column '{name}' of the network table is not a number everywhere"
                )
            variables.append(_numbers(name, tuple(map(float, declared)), integer=name != "dur"))
            frame[name] = numbers
    schema = Schema(variables=tuple(variables))
    rules = _Rules(schema)
    return DataSet(
        name="UNSW-NB15",
        schema=schema,
        knowledge=Knowledge(
            rules=(
                *(
                    rules.implies(f"services over {proto}", ("service", *services), ("proto", proto))
                    for proto, services in _UNSW_OVER.items()
                ),
                rules.implies("TCP finishes", ("state", "FIN"), ("proto", "tcp")),
            )
        ),
        target="label",
        sensitive="state",
        frame=pd.DataFrame(frame),
    )


class _Rules:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def implies(self, name: str, when: Sequence[str], then: Sequence[str]) -> Rule:
        """A column and some of its categories; where it has one, another column has one of some."""
        return Rule(name=name, when=(self._condition(when),), then=(self._condition(then),))

    def _condition(self, words: Sequence[str]) -> Condition:
        name, *values = words
        labels = self._schema[self._schema.index(name)].labels
        return Condition(variable=name, values=tuple(label for label in labels if label in values))


def _categories(name: str, labels: Sequence[str], *, other: str | None = None) -> Variable:
    return Variable(name=name, owner=OWNER, labels=tuple(labels), other=other)


def _numbers(name: str, edges: Sequence[float], *, integer: bool = True) -> Variable:
    bins = tuple(map(float, edges))
    return Variable(name=name, owner=OWNER, labels=bin_labels(bins), bins=bins, integer=integer)


def recoded(data: DataSet, codes: Sequence[Codes]) -> list[NDArray[np.unsignedinteger]]:
    """The generated variables' codes of records of all columns: what rules are asked about."""
    names = data.everything.names
    return [codes[names.index(name)] for name in data.schema.names]
