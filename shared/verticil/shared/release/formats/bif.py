"""The network in two formats of the field: BIF, and XMLBIF 0.3.

BIF is the text format that pgmpy, pyAgrum and bnlearn all read.

The three readers agree on little: quotes, commas, blanks, brackets, signs and `/` in a name are a syntax error in one of them and
silently wrong numbers in another (pgmpy reads a row of the category ``a(b)`` as zeros). So the file is written in the common
subset: ASCII tokens ``[A-Za-z_][A-Za-z0-9_]*``, distinct without regard to case, no keywords, one explicit row for each parent
configuration, no ``default``, no properties. `//` lines at the top and the sidecar file of `write_label_map` say which label each
token stands for; XMLBIF carries the labels themselves.

Every probability is written with the shortest digits that give the same double again, at most 17 significant ones. Ten digits
and a last entry of one minus the sum, as some writers do, would be off by up to (K - 1) * 5e-11, more than 1e-9 from K = 22 on.
pyAgrum 3.3.1 reads the numbers of a BIF file (not those of XMLBIF) in single precision, which moves 0.1 by 1.5e-9: a network is
read back exactly by every reader when its probabilities went through `verticil.shared.numerics.model.rounding`, as published ones
do.

The network is written without its uncertainty, for which BIF has no place: `model.json` carries it.

Format: F. G. Cozman, "The Interchange Format for Bayesian Networks", 1996 (BIF 0.15); bnlearn's reader, R/foreign-read.R.

XMLBIF 0.3: the network with its original names and categories, for pgmpy, pyAgrum, Weka, SamIam and others.

Labels such as ``<=50K``, ``[17,25)`` or ``a&b`` are carried as they are, escaped as XML wants it; the schema refuses the few
texts that XML or a reader cannot carry (control characters, blanks at the ends). Tables have the format's own order, the parents
in the order of their ``GIVEN`` elements with the last one fastest and the child fastest of all, which is the project's own.
Probabilities are written with the shortest digits that give the same double again.

No document type declaration is written: readers do not need it, and careful ones refuse documents that bring one.

Format: F. G. Cozman, "The Interchange Format for Bayesian Networks", 1998 (XMLBIF 0.3).
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape as escape_markup

from verticil.shared.core.arrays import Floats
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Schema, Variable

_KEYWORDS: Final = frozenset(
    (
        *("network", "variable", "probability", "property", "type", "discrete", "table", "default"),  # of the format
        *("true", "false", "nan", "none", "null"),  # of readers
    )
)
_WORDS: Final = {"<=": " le ", ">=": " ge ", "<": " lt ", ">": " gt ", "+": " plus ", "%": " percent ", "&": " and "}
_INTERVAL: Final = re.compile(r"[\[(]\s*(-?[0-9.eE+-]+)\s*,\s*(-?[0-9.eE+-]+)\s*[\])]")
_MAX_TOKEN: Final = 48
_HEADER: Final = """\
// A Bayesian network published by verticil. Names and categories below are safe tokens;
// each line `// variable` and `// category` gives the token and, as JSON text, what it stands for.
// The file network.bifxml carries the original names, model.json the standard errors and intervals.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMap:
    """The tokens of a schema.

    Attributes:
        variables: token of each variable, in schema order.
        categories: for each variable the tokens of its categories, in order.
    """

    variables: tuple[str, ...]
    categories: tuple[tuple[str, ...], ...]


def token_for(label: str) -> str:
    """Return the token that a label becomes when nothing else has taken it.

    >>> [token_for(label) for label in ("<=50K", "[17,25)", "[-5,0.5)", "7th-8th", "a&b", "café (no)", "?", "table")]
    ['le_50K', 'i17_25', 'im5_0_5', '_7th_8th', 'a_and_b', 'cafe_no', '_', 'table_']
    """
    text = label
    if interval := _INTERVAL.fullmatch(label):
        text = "i" + "_".join(edge.replace("-", "m") for edge in interval.groups())
    for sign, word in _WORDS.items():
        text = text.replace(sign, word)
    if re.match(r"-[0-9.]", text):
        text = "m" + text[1:]
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    token = re.sub(r"[^A-Za-z0-9]+", "_", ascii_text).strip("_")[:_MAX_TOKEN]
    if not token or token[0].isdigit():
        token = "_" + token
    return token + "_" if token.lower() in _KEYWORDS else token


def _distinct(labels: Iterable[str]) -> tuple[str, ...]:
    taken: set[str] = set()
    tokens: list[str] = []
    for label in labels:
        first = token_for(label)
        token = first
        for number in itertools.count(2):
            if token.lower() not in taken:
                break
            token = f"{first}_{number}"
        taken.add(token.lower())
        tokens.append(token)
    return tuple(tokens)


def label_map(schema: Schema) -> LabelMap:
    """Tokens for the names and categories of a schema: a function of the schema alone, distinct without regard to case."""
    return LabelMap(
        variables=_distinct(schema.names), categories=tuple(_distinct(variable.labels) for variable in schema.variables)
    )


def _comment_text(text: str) -> str:
    # Inside a comment too: bnlearn cuts a line at `//`, and readers that look for brackets or `;` do not all skip comments first.
    return re.sub(
        r"[^A-Za-z0-9 _.<>=+\"\\-]", lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=True)
    )


def _row(values: Sequence[float]) -> str:
    return ", ".join(map(repr, values))


def network_to_bif(network: Network) -> bytes:
    """Write a network as BIF.

    Args:
        network: what to write; `Family.probability` is what goes into the file.

    Returns:
        The file, ASCII, lines ending in a line feed.
    """
    schema = network.schema
    tokens = label_map(schema)
    lines: list[str] = []
    for position, variable in enumerate(schema.variables):
        lines.append(f"// variable {tokens.variables[position]} {_comment_text(variable.name)}\n")
        for token, label in zip(tokens.categories[position], variable.labels, strict=True):
            lines.append(f"// category {tokens.variables[position]} {token} {_comment_text(label)}\n")
    lines.append("network verticil {\n}\n")
    for position, variable in enumerate(schema.variables):
        states = ", ".join(tokens.categories[position])
        lines.append(
            f"variable {tokens.variables[position]} {{\n  type discrete [ {variable.n_states} ] {{ {states} }};\n}}\n"
        )
    for family in network.families:
        table: list[list[float]] = family.probability.tolist()
        child = tokens.variables[family.child]
        if not family.parents:
            lines.append(f"probability ( {child} ) {{\n  table {_row(table[0])};\n}}\n")
            continue
        lines.append(
            f"probability ( {child} | {', '.join(tokens.variables[parent] for parent in family.parents)} ) {{\n"
        )
        configurations = itertools.product(*(tokens.categories[parent] for parent in family.parents))
        for configuration, row in zip(configurations, table, strict=True):
            lines.append(f"  ({', '.join(configuration)}) {_row(row)};\n")
        lines.append("}\n")
    return (_HEADER + "".join(lines)).encode("ascii")


def write_label_map(schema: Schema) -> bytes:
    """Write the sidecar file: the same map as JSON, for programs.

    Returns:
        ``{"variables": [{"token", "name", "categories": [{"token", "label"}, ..]}, ..]}`` in schema order, UTF-8.
    """
    tokens = label_map(schema)
    document = {
        "format": "verticil-bif-labels",
        "version": 1,
        "file": "network.bif",
        "variables": [
            {
                "token": tokens.variables[position],
                "name": variable.name,
                "categories": [
                    {"token": token, "label": label}
                    for token, label in zip(tokens.categories[position], variable.labels, strict=True)
                ],
            }
            for position, variable in enumerate(schema.variables)
        ],
    }
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def escape(text: str) -> str:
    """Escape text for XML; of neighbouring blanks all but the first become references (pyAgrum reads two blanks as one).

    >>> escape("a  <b>")
    'a &#32;&lt;b&gt;'
    """
    return escape_markup(text).replace("  ", " &#32;").replace("  ", " &#32;")


def network_to_xmlbif(network: Network) -> bytes:
    """Write a network as XMLBIF.

    Args:
        network: what to write; `Family.probability` is what goes into the file, owners become a property of each variable.

    Returns:
        The file, UTF-8, lines ending in a line feed.
    """
    names = network.schema.names
    return xmlbif(
        (xml_variable(variable) for variable in network.schema.variables),
        (
            xml_definition(
                names[family.child], [names[parent] for parent in family.parents], xml_rows(family.probability)
            )
            for family in network.families
        ),
    )


def xmlbif(variables: Iterable[str], definitions: Iterable[str]) -> bytes:
    """Return the file of these elements, UTF-8, lines ending in a line feed."""
    head = ('<?xml version="1.0" encoding="UTF-8"?>', '<BIF VERSION="0.3">', "<NETWORK>", "<NAME>verticil</NAME>")
    return "\n".join([*head, *variables, *definitions, "</NETWORK>", "</BIF>", ""]).encode("utf-8")


def xml_variable(variable: Variable) -> str:
    """Return the element of a variable."""
    lines = ['<VARIABLE TYPE="nature">', f"  <NAME>{escape(variable.name)}</NAME>"]
    lines.extend(f"  <OUTCOME>{escape(label)}</OUTCOME>" for label in variable.labels)
    if "=" not in variable.owner:  # readers split a property at its only equals sign
        lines.append(f"  <PROPERTY>owner = {escape(variable.owner)}</PROPERTY>")
    return "\n".join([*lines, "</VARIABLE>"])


def xml_definition(child: str, parents: Iterable[str], rows: Iterable[str]) -> str:
    """Return the element of a table.

    Args:
        child, parents: names.
        rows: for each configuration of the parents the text of its numbers.
    """
    lines = ["<DEFINITION>", f"  <FOR>{escape(child)}</FOR>", *(f"  <GIVEN>{escape(name)}</GIVEN>" for name in parents)]
    lines.append("  <TABLE>\n    " + "\n    ".join(rows) + "\n  </TABLE>")
    return "\n".join([*lines, "</DEFINITION>"])


def xml_rows(table: Floats) -> list[str]:
    """Return the text of each row of a table."""
    rows: list[list[float]] = table.tolist()
    return [" ".join(map(repr, row)) for row in rows]
