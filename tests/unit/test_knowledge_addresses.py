"""Addresses in rules: networks and ranges of IPv4 and IPv6, an address that is none, the example in the paper's vocabulary."""

from __future__ import annotations

import doctest
import ipaddress
import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from support.knowledge import HEAD, PREFIXES, study
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.knowledge import addresses
from verticil.shared.numerics.knowledge.addresses import canonical_address, read_range
from verticil.shared.numerics.knowledge.columns import columns
from verticil.shared.numerics.knowledge.reasoning import ask
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "network-events" / "study.toml"
WHERE = 'kind = "property"\nname = "where"\ncolumn = "education"\ntype = "address"\nvalues = '
COLUMN = """\
[[variable]]
party = "school"
name = "server"
categories = ["192.0.2.1", "192.0.2.9", "198.51.100.1", "2001:db8::1", "other"]
"""


def test_examples_in_the_docstrings():
    assert doctest.testmod(addresses).failed == 0


@pytest.mark.parametrize(
    "text", ["192.0.2.0/28", "192.0.2.250-192.0.3.3", "2001:db8::/124", "2001:DB8::fff0-2001:db8::1:2", "203.0.113.7"]
)
def test_a_range_has_the_addresses_that_ipaddress_has(text: str):
    if "-" in text:
        ends = [ipaddress.ip_address(part) for part in text.split("-")]
        expected = [
            str(ipaddress.ip_address(address))
            for network in ipaddress.summarize_address_range(*ends)
            for address in network
        ]
    else:
        expected = [str(address) for address in ipaddress.ip_network(text)]
    found = read_range(text)
    assert list(found.texts()) == expected
    assert found.size == len(expected)
    assert all(found.holds(address) for address in expected)
    before, after = (type(ipaddress.ip_address(expected[0]))(number) for number in (found.first - 1, found.last + 1))
    assert not any(found.holds(str(each)) for each in (before, after, "other"))


def test_versions_are_apart_though_their_numbers_are_equal():
    four, six = read_range("0.0.0.1"), read_range("::1")
    assert (four.first, six.first) == (1, 1)
    assert (four.holds("::1"), six.holds("0.0.0.1")) == (False, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "192.0.2.300",
            "this is no address, expected an IPv4 or IPv6 address, a network such as 192.0.2.0/24, or a range",
        ),
        ("192.0.2", "this is no address"),
        ("192.0.02.1", "this is no address"),
        ("2001:db8::g", "this is no address"),
        ("a-b", "this is no address"),
        ("", "this is no address"),
        ("fe80::1%eth0", "the address names an interface"),
        ("192.0.2.0/33", "this is no network"),
        ("192.0.2.5/24", "the network has bits behind its prefix of 24, expected its first address"),
        ("192.0.2.9-192.0.2.1", "the range ends before it begins"),
        ("192.0.2.1-2001:db8::1", "a range from IPv4 to IPv6"),
        ("198.18.0.0/19", "8,192 addresses, expected at most 4,096: each is a value of its own"),
        ("10.0.0.0/8", "16,777,216 addresses, expected at most 4,096"),
        ("2001:db8::/64", "18,446,744,073,709,551,616 addresses, expected at most 4,096"),
    ],
)
def test_an_address_that_is_none_is_refused_where_it_stands_and_not_repeated(tmp_path: Path, text: str, problem: str):
    with pytest.raises(Misuse) as refused:
        study(tmp_path, WHERE + f'[["none", "192.0.2.1"], ["some", "{text}"]]')
    assert refused.value.code == "STUDY_INVALID"
    assert f"rule[1].values[2]: {problem}" in str(refused.value)
    assert len(text) < 5 or text not in str(refused.value).replace("192.0.2.0/24", "").replace(
        "192.0.2.1-192.0.2.9", ""
    )


def test_a_network_becomes_its_addresses_in_equal_parts_of_its_weight(tmp_path: Path):
    read = study(
        tmp_path,
        WHERE + '[["none", "192.0.2.0/30", 8], ["some", "2001:DB8::1"], ["none", "198.51.100.1-198.51.100.2"]]',
    )
    assert read.knowledge is not None
    (refinement,) = read.knowledge.refinements
    assert refinement.values == (
        *(("none", f"192.0.2.{last}", 2.0) for last in range(4)),
        *(("none", f"198.51.100.{last}", 0.5) for last in (1, 2)),
        ("some", "2001:db8::1", 1.0),
    )
    one_by_one = ", ".join(f'["{label}", "{value}", {weight}]' for label, value, weight in refinement.values)
    same = study(tmp_path, WHERE.replace('type = "address"\n', "") + f"[{one_by_one}]")
    assert canonical.digest(same) == canonical.digest(read)


def test_two_rows_with_a_common_address_are_refused(tmp_path: Path):
    with pytest.raises(Misuse, match=r"values\[2\]: it has an address that stands in a row before"):
        study(tmp_path, WHERE + '[["none", "192.0.2.0/30"], ["some", "192.0.2.3"]]')


def test_conditions_name_categories_by_networks_and_ranges(tmp_path: Path):
    head = HEAD.replace("[randomization_default]", COLUMN + "[randomization_default]")
    rule = 'kind = "forbidden"\nall = { server = { network = %s }, sex = "Male" }'

    def named(network: str) -> tuple[str, ...]:
        read = study(tmp_path, rule % network, head=head)
        assert read.knowledge is not None
        return read.knowledge.rules[0].when[-1].values

    assert named('"192.0.2.0/24"') == ("192.0.2.1", "192.0.2.9")
    assert named('["192.0.2.2-198.51.100.1", "2001:db8::/32"]') == ("192.0.2.9", "198.51.100.1", "2001:db8::1")
    for network, problem in (
        ('"203.0.113.0/24"', "no category of 'server' is an address in it"),
        ('"192.0.2.300"', "network: this is no address"),
    ):
        with pytest.raises(Misuse, match=re.escape(problem)):
            named(network)


def test_asking_takes_addresses_in_any_spelling_and_names_what_is_none(tmp_path: Path):
    read = study(
        tmp_path,
        WHERE + '[["none", "192.0.2.0/30"], ["some", "2001:db8::1"]]',
        'kind = "implication"\nname = "some are male"\nif = { education = "some" }\nthen = { sex = "Male" }',
    )
    assert read.knowledge is not None
    schema = read.schema
    assert ask(read.knowledge, schema, {"education": "2001:DB8:0::1", "sex": "Female"}).possible is False
    with pytest.raises(Misuse, match="education: this is no address, expected an IPv4 or IPv6 address"):
        ask(read.knowledge, schema, {"education": "192.0.2.300"})
    assert canonical_address(" 2001:DB8::0001 ") == "2001:db8::1"


def test_a_sequence_is_refused_with_what_can_be_said_instead(tmp_path: Path):
    with pytest.raises(
        Misuse, match=r"kind: a sequence says what a record is followed by, and records of a study have no"
    ):
        study(tmp_path, 'kind = "sequence"\nif = { sex = "Male" }')


def test_a_graph_names_networks_as_tables_do(tmp_path: Path):
    """`k:network` in place of `sh:in`; one that is none, or holds no category, is refused with its line."""
    head = HEAD.replace("[randomization_default]", COLUMN + "[randomization_default]")
    rule = (
        'kind = "implication"\nname = "near"\nif = { server = { network = "192.0.2.0/24" } }\nthen = { sex = "Male" }'
    )
    graph = PREFIXES + (
        ':server a k:Attribute ; k:column "server" . :sex a k:Attribute ; k:column "sex" .\n'
        ':near a sh:NodeShape ; sh:targetClass k:Record ; rdfs:label "near" ;\n'
        '  sh:or ( [ sh:not [ sh:path :server ; k:network "%s" ] ] [ sh:path :sex ; sh:in ( "Male" ) ] ) .'
    )

    def by_file(network: str):
        (tmp_path / "rules.ttl").write_text(graph % network)
        (tmp_path / "graph.toml").write_text(head + '[knowledge]\nfile = "rules.ttl"\n')
        return read_study(tmp_path / "graph.toml").knowledge

    assert by_file("192.0.2.0/24") == study(tmp_path, rule, head=head).knowledge
    for network, problem in (
        ("192.0.2.300", "k:network: this is no address"),
        ("203.0.113.0/24", "no category of 'server' is an address of k:network"),
    ):
        with pytest.raises(Misuse, match=rf"rules.ttl: line \d+: .*{problem}"):
            by_file(network)


# ---- the example


def test_the_example_in_the_papers_vocabulary_says_what_the_paper_says():
    read = read_study(EXAMPLE)
    assert read.knowledge is not None
    schema, known = read.schema, read.knowledge
    words = {"networkEvent", "domainURL", "Protocol", "sourceIP", "destinationIP", "sourcePort", "destinationPort"}
    assert words == set(schema.names)
    allowed = support(known, schema)
    grid = [np.array(column) for column in zip(*itertools.product(*map(range, schema.n_states)), strict=True)]
    label = {name: np.array(schema[schema.index(name)].labels)[grid[schema.index(name)]] for name in schema.names}
    possible = allowed.holds(grid)
    lookup = possible & (label["networkEvent"] == "DNS lookup request")
    assert lookup.any()
    assert set(zip(label["sourceIP"][lookup], label["destinationIP"][lookup], strict=True)) == {("home", "gateway")}
    assert set(label["destinationPort"][lookup]) == {"53"}
    answer = possible & (label["networkEvent"] == "DNS lookup response")
    assert set(zip(label["sourceIP"][answer], label["destinationIP"][answer], strict=True)) == {("gateway", "home")}
    assert not (possible & (label["destinationPort"] == "443") & (label["Protocol"] == "UDP")).any()
    assert dict(known.groups[0].groups)["dynamically assigned"] == ("49152-65535",)


def test_synthetic_records_of_the_example_have_addresses_of_their_networks():
    read = read_study(EXAMPLE)
    assert read.knowledge is not None
    written = columns(read.knowledge, read.schema)
    n = 2000
    codes = [np.zeros(n, dtype=np.uint8) for _ in read.schema.names]
    place = read.schema.index("sourceIP")
    codes[place] = (np.arange(n) % 3).astype(np.uint8)
    drawn = written.draw_columns(codes, np.random.default_rng(1))[place]
    texts = np.array(written.published[place].labels)[drawn]
    home = (*map(read_range, ("192.168.1.16/28", "fd00:1::10-fd00:1::1f")),)
    assert all(any(some.holds(text) for some in home) for text in texts[codes[place] == 0])
    assert set(texts[codes[place] == 1]) == {"192.168.1.1"}
    share = np.mean(["." in text for text in texts[codes[place] == 0]])
    assert abs(share - 0.8) < 4 * (0.8 * 0.2 / (n / 3)) ** 0.5  # 4 to 1; false alarms: 1 of 15,000
    assert read.knowledge.properties("sourceIP")["192.168.1.17"] == "home"
