"""XMLBIF 0.3: the network with its original names and categories, for pgmpy, pyAgrum, Weka, SamIam and others.

Labels such as ``<=50K``, ``[17,25)`` or ``a&b`` are carried as they are, escaped as XML wants it; the schema refuses the few
texts that XML or a reader cannot carry (control characters, blanks at the ends). Tables have the format's own order, the parents
in the order of their ``GIVEN`` elements with the last one fastest and the child fastest of all, which is the project's own.
Probabilities are written with the shortest digits that give the same double again (`verticil.shared.formats.bif` says why).

No document type declaration is written: readers do not need it, and careful ones refuse documents that bring one.

Format: F. G. Cozman, "The Interchange Format for Bayesian Networks", 1998 (XMLBIF 0.3).
"""

from __future__ import annotations

from xml.sax.saxutils import escape as escape_markup

from verticil.shared.model.network import Network


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
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<BIF VERSION="0.3">', "<NETWORK>", "<NAME>verticil</NAME>"]
    for variable in network.schema.variables:
        lines.append('<VARIABLE TYPE="nature">')
        lines.append(f"  <NAME>{escape(variable.name)}</NAME>")
        lines.extend(f"  <OUTCOME>{escape(label)}</OUTCOME>" for label in variable.labels)
        if "=" not in variable.owner:  # readers split a property at its only equals sign
            lines.append(f"  <PROPERTY>owner = {escape(variable.owner)}</PROPERTY>")
        lines.append("</VARIABLE>")
    for family in network.families:
        lines.append("<DEFINITION>")
        lines.append(f"  <FOR>{escape(network.schema[family.child].name)}</FOR>")
        lines.extend(f"  <GIVEN>{escape(network.schema[parent].name)}</GIVEN>" for parent in family.parents)
        table: list[list[float]] = family.probability.tolist()
        lines.append("  <TABLE>\n    " + "\n    ".join(" ".join(map(repr, row)) for row in table) + "\n  </TABLE>")
        lines.append("</DEFINITION>")
    lines.extend(["</NETWORK>", "</BIF>", ""])
    return "\n".join(lines).encode("utf-8")
