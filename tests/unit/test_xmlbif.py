"""XMLBIF: original names and labels and every probability, read back by pgmpy and pyAgrum."""

from __future__ import annotations

import doctest
from pathlib import Path
from xml.etree import ElementTree

from verticil.shared.release.formats import bif as xmlbif
from verticil.shared.release.formats.bif import network_to_xmlbif


def test_names_labels_and_probabilities_are_read_back(hard_network, read_elsewhere, difference, tmp_path: Path):
    path = tmp_path / "network.bifxml"
    path.write_bytes(network_to_xmlbif(hard_network))
    read = read_elsewhere(path)
    labels = tuple(variable.labels for variable in hard_network.schema.variables)
    assert difference(hard_network, read, hard_network.schema.names, labels) <= 1e-9
    assert {"<=50K", "[17,25)", "a&b", "a  b"} <= set(read.states["my var"])


def test_without_rounding_too(make_network, hard_network, read_elsewhere, difference, tmp_path: Path):
    """XMLBIF numbers are read in double precision by both."""
    network = make_network(hard_network.schema.variables, hard_network.dag.parents, rounded=False)
    path = tmp_path / "network.bifxml"
    path.write_bytes(network_to_xmlbif(network))
    labels = tuple(variable.labels for variable in network.schema.variables)
    assert difference(network, read_elsewhere(path), network.schema.names, labels) <= 1e-15


def test_the_document_by_the_format(hard_network):
    """XMLBIF 0.3: the child varies fastest, then the last GIVEN; no document type; owners as properties."""
    data = network_to_xmlbif(hard_network)
    assert b"<!" not in data
    root = ElementTree.fromstring(data)  # our own bytes
    assert (root.tag, root.get("VERSION")) == ("BIF", "0.3")
    first = root.findall("NETWORK/DEFINITION")[0]
    assert [node.text for node in first.findall("GIVEN")] == ["a&b", "MY-VAR"]
    table = [float(number) for number in (first.findtext("TABLE") or "").split()]
    assert table == hard_network.families[0].probability.ravel().tolist()
    properties = [node.text for node in root.findall("NETWORK/VARIABLE/PROPERTY")]
    assert properties == ["owner = clinic", "owner = clinic", "owner = registry", "owner = registry"]


def test_examples_in_the_docstrings():
    assert doctest.testmod(xmlbif).failed == 0
