"""Every decoder of the project under fuzzing: what reads bytes, text or files that somebody else can have made.

Each has a valid example, written by the project's own encoders, and gets bytes at random, examples damaged anywhere, documents
with values that nobody expects in any place. Allowed is an error of ours, or an answer; it takes seconds and some MiB at most.
`NAMES` lists the decoders; `EXEMPT` says what looks like one and is left out, and why; a test compares both with the sources, so
that a new decoder is missed. The default run tries a few cases of each, `pytest -m faults tests/faults` many.
"""

from __future__ import annotations

import ast
import base64
import copy
import json
import re
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.decoders import NAMES, RAW, Decoder, harmless, make_decoders
from support.syntax import parsed
from verticil.shared.core.errors import VerticilError

EXEMPT: Mapping[str, str] = {
    "shared.privacy.events.from_json": "reads the site's own ledger, written by itself",
    "party.protocol.context.PartyContext.verify": "verifies with verify_signed",
    "shared.core.errors.from_code": "takes a code, not a document; from_detail is fuzzed",
    "party.dataset.column_draws.ColumnDraw.from_json": "reads the site's own database, written by itself",
    "party.protocol.with_peers.artifact_store.ArtifactStore.read": "reads files whose SHA-256 stands in the site's own database",
    "shared.masked.round.round_store.RoundFolder.read": "the node's own files, written by itself",
    "miner.storage.linkage.read_list": "maps a file whose size and SHA-256 were checked before",
    "shared.federation.identity.authority.open_authority": (
        "the authority's own folder; reads with read_certificates and load_private_key"
    ),
    "pki.register.entries": "the authority's own register, whose certificates it verifies",
    "party.dataset.sources.column_rules.read_column_rule": "part of load_party, which is fuzzed",
    "simulation.peers.load_everywhere": "reads with read_study",
    "shared.documents.written_values.dates.DatePattern.read": "takes a text to a number or None; hypothesis tries it",
    "shared.documents.written_values.numbers.NumberStyle.read": "takes a text to a number or None; hypothesis tries it",
    "shared.documents.written_values.numbers.read_number": "takes a text to a number or None; hypothesis tries it",
    "shared.documents.written_values.numbers.read_plain": "takes a text to a number or None; hypothesis tries it",
    "shared.documents.written_values.on_scale.read_moment": "a value of a TOML document, which is parsed before",
    "shared.documents.written_values.reading.read_texts": "takes texts to numbers, as value_reader does; hypothesis tries it",
    "shared.study.typed_variables.read_endings": "part of read_study, which is fuzzed",
    "party.dataset.sources.conditions.read_condition": "part of load_party, which is fuzzed",
    "shared.study.typed_variables.read_groups": "part of read_study, which is fuzzed",
    "shared.study.related_tables.read_related": "part of read_study, which is fuzzed",
    "party.related_people.read_related": "reads with party.dataset.source.read_batches, as tables of people are read",
    "shared.study.typed_variables.read_values": "part of read_study, which is fuzzed",
    "shared.study.typed_variables.read_bounds": "part of read_study, which is fuzzed",
    "design.edits.parse": "the analyst's own study.toml, by tomlkit; tests/unit/test_design_page.py names what cannot be read",
    "shared.federation.airgap.bundle.verify_bundle": "reads with read_statement, and verifies with verify_signed",
    "cli.party_study.load": "reads with read_study",
    "shared.storage.disk.read_only_fault": "makes an error, and reads nothing",
    "cli.pki_site.install": "reads with install",
    "shared.core.installation.install_command": "writes a command, and reads nothing from outside",
    "shared.core.installation.install_package": "writes a command, and reads nothing from outside",
    "shared.core.installation.install_experiments": "writes a command, and reads nothing from outside",
    "shared.numerics.joint.worth.read_worth": "a part of model.json, which is parsed before",
    "analysis.formula.parse": "the analyst's own formula",
    "cli.release.verify": "reads with verify_release",
    "shared.masked.round.sealed_messages.Mail.open_frames": "reads with envelope.read_frames, which the decoders have",
    "api.release.open_release": "reads with verify_release_with, and with open_models",
    "curator.state.open_state": "the owner's own folder, written by itself",
    "shared.numerics.model.artifact.unpack_parts": "what unpack reads with, part by part",
    "shared.study.reading.read_study_text": "is read_study of a text that its own user wrote",
    "shared.release.verification.verify_release_with": "reads with verify_release",
    "shared.documents.foreign_files.reading.read_at_most": "what others read files with: their bytes, as long as they are few",
    "shared.release.signatures.read_document": "what verify_release reads files with: their bytes, as long as they are few",
    "shared.synthesis.record_checks.read_both": "reads with read_records, and what read_records reads with",
    "shared.release.drawing.open_models": "reads with model_json.read and read_joint, and study.canonical.from_bytes",
    "cli.service_unit.install": "writes a unit, and reads none",
    "miner.storage.noisy_table_files.read_tables": "the miner's own file; tests/unit/test_table_noise.py damages it",
    "curator.reading.read_table": "reads with party.dataset.source.read_records, as a party does",
    "shared.release.formats.posterior.read_networks": "reads with read and with model_json.read",
    "shared.numerics.knowledge.reading.read_knowledge": "reads a part of what read_study parsed",
    "cli.commands.load": "loads a command of the project",
    "shared.core.plugins.load": "loads what an installed package of the project names in its entry points",
    "api.release.load": "reads with verify_release, model_json and study.canonical",
    "api.study.read": "reads with read_study_text, which is read_study",
    "reproduce.experiment.read_texts": "pandas parses the CSV; each data set checks its columns",
    "reproduce.experiment.read_columns": "reads with read_texts",
    "shared.numerics.knowledge.addresses.read_range": "reads a part of what read_study parsed; its caller words the error",
    "gan.conditions.Parts.entries": "takes codes of records that were read and checked, and numbers drawn for them",
    "gan.ablations._Constant.entries": "draws nothing and reads nothing: the condition vector that is left out",
    "shared.federation.transport.sealing.load_sealing_key": "the site's own key; reads with load_private_key",
}
"""What looks like a decoder and is none of foreign bytes, and why."""


@pytest.fixture(scope="module")
def decoders(
    tmp_path_factory: pytest.TempPathFactory, release_study: Any, release_content: Any, peer_case: Any, peer_study: Any
) -> dict[str, Decoder]:
    return make_decoders(tmp_path_factory.mktemp("decoders"), release_study, release_content, peer_case, peer_study)


LOOKS_LIKE_A_NAME = re.compile(
    r"^(parse|read|load|unpack|from_|plain_data|checked$|verify|install|open_|common_from|entries|content_of)"
)
LOOKS_LIKE_FOREIGN = re.compile(r"bytes|Path|\bstr\b|Signed|Chunk|ErrorDetail|Table|NDArray")


def found_in_the_sources(root: Path) -> set[str]:
    """Public functions that are called as decoders are and take what decoders take."""
    found: set[str] = set()
    for wing in ("shared", "party", "miner", "deploy", "deploy/experiments"):
        for path in (root / wing / "verticil").rglob("*.py"):
            if "wire" in path.relative_to(root).parts:
                continue
            module = ".".join(path.relative_to(root / wing / "verticil").with_suffix("").parts)
            tree = parsed(path.read_text(encoding="utf-8"))
            owners: list[ast.Module | ast.ClassDef] = [
                tree,
                *(node for node in tree.body if isinstance(node, ast.ClassDef)),
            ]
            for owner in owners:
                prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
                for node in owner.body:
                    if not isinstance(node, ast.FunctionDef) or not LOOKS_LIKE_A_NAME.match(node.name):
                        continue
                    taken = [argument for argument in node.args.args if argument.arg not in {"self", "cls"}]
                    annotation = taken[0].annotation if taken else None
                    if annotation is not None and LOOKS_LIKE_FOREIGN.search(ast.unparse(annotation)):
                        found.add(f"{module}.{prefix}{node.name}")
    return found


def test_no_decoder_is_missing() -> None:
    named = {name.split(" ", maxsplit=1)[0] for name in NAMES}
    assert not named & EXEMPT.keys()
    assert found_in_the_sources(Path(__file__).parents[2]) == named | EXEMPT.keys()


def test_every_example_is_accepted(decoders: dict[str, Decoder]) -> None:
    assert decoders.keys() == set(NAMES)
    for name, decoder in decoders.items():
        if (
            name != "shared.federation.transport.chunks.plain_data of a zlib stream"
        ):  # its checksum is not in the example
            decoder.decode(decoder.example)


NASTY = (
    None, True, 0, -1, 1e308, -0.0, 2**63, 2**64, 10**400, "", "x" * 5000, "\ud800", "\0", "../../x", "é\u202e", "NaN", "1e999",
    [], {}, [[]], [None] * 1000, {"": ""}, 5e-324, 1.0000000000000002,
)  # fmt: skip


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every value in a document."""
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(way for key, item in inner for way in places(item, (*path, key)))]


def changed(root: object, way: tuple[str | int, ...], change: str, value: object) -> object:
    """The document with one value replaced, removed, repeated, or given a neighbour."""
    if not way:
        return value
    root = copy.deepcopy(root)
    holder: Any = root
    for key in way[:-1]:
        holder = holder[key]
    if change == "remove":
        del holder[way[-1]]
    elif change == "add" and isinstance(holder, dict):
        holder["unheard of"] = value
    elif change == "repeat" and isinstance(holder, list):
        holder.append(holder[way[-1]])
    else:
        holder[way[-1]] = value
    return root


@st.composite
def damaged(draw: st.DrawFn, example: bytes) -> bytes:
    """The example with something wrong in it, or something else."""
    kind = draw(st.sampled_from(("noise", "raw", "bytes", "bytes", "document", "document", "document")))
    if kind == "noise":
        return draw(st.binary(max_size=300))
    if kind == "raw":
        return draw(st.sampled_from(RAW))
    if kind == "document":
        try:
            root = json.loads(example)
        except ValueError:
            kind = "bytes"
        else:
            way = draw(st.sampled_from(places(root)))
            change = draw(st.sampled_from(("replace", "replace", "remove", "add", "repeat")))
            root = changed(root, way, change, draw(st.sampled_from(NASTY)))
            text = json.dumps(root, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            return text.encode("utf-8", errors="surrogatepass")
    data = bytearray(example)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(("flip", "cut", "insert", "number", "remove", "double", "raw"))):
            case "flip" if at < len(data):
                data[at] ^= draw(st.integers(1, 255))
            case "cut":
                del data[at:]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "number" if at < len(data):
                data[at : at + 8] = b"\xff" * 8 if data[at] > 127 else b"99999999999999999999"
            case "remove":
                del data[at : at + draw(st.integers(1, 40))]
            case "double":
                data[at:at] = data[at : at + 200]
            case "raw":
                data[at:at] = draw(st.sampled_from(RAW))[:2000]
            case _:
                pass
    return bytes(data)


def fuzz(decoder: Decoder, examples: int, *, repeatable: bool) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=repeatable,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=damaged(decoder.example))
    def run(data: bytes) -> None:
        harmless(decoder, data)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for raw in RAW:
        harmless(decoder, raw)
    run()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 256


def _other_curve(pem: bytes) -> bytes:
    key = base64.b64decode(b"".join(pem.splitlines()[1:-1])).replace(b"\x2a\x86\x48\xce\x3d", b"\x1a\x86\x48\xce\x3d")
    label = b"PRIVATE KEY"
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, base64.encodebytes(key), label)


FOUND: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    ("shared.documents.config.read_toml", lambda _: b"x = " + b"[" * 20_000),
    ("shared.study.approval.parse_approval", lambda body: body.replace(b'"index":0', b'"index":9223372036854775808')),
    (
        "shared.study.canonical.from_bytes",
        lambda body: re.sub(rb'"generations":\d+', b'"generations":1' + b"0" * 400, body),
    ),
    (
        "shared.study.reading.read_study",
        lambda text: re.sub(rb"generations = \d+", b"generations = 1" + b"0" * 400, text),
    ),
    ("shared.federation.identity.pki.load_private_key", _other_curve),
    (
        "shared.federation.identity.signing.verify_signed",
        lambda raw: raw.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x03"),
    ),
    (
        "shared.federation.identity.pki.load_credentials",
        lambda _: b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
    ),
)


@pytest.mark.parametrize(("name", "damage"), FOUND, ids=[name for name, _ in FOUND])
def test_what_fuzzing_has_found(name: str, damage: Callable[[bytes], bytes], decoders: dict[str, Decoder]) -> None:
    decoder = decoders[name]
    assert damage(decoder.example) != decoder.example
    with pytest.raises(VerticilError):
        decoder.decode(damage(decoder.example))


def test_what_fuzzing_has_found_in_an_audit_log(decoders: dict[str, Decoder]) -> None:
    """A line that is nested too deeply is no event, and hides none."""
    log = decoders["shared.federation.audit.entries"]
    assert log.decode(b"[" * 2000 + b"\n" + log.example) == log.decode(log.example)


@pytest.mark.parametrize("name", NAMES)
def test_a_few_damaged_documents(name: str, decoders: dict[str, Decoder]) -> None:
    fuzz(decoders[name], 12, repeatable=True)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_documents(name: str, decoders: dict[str, Decoder], in_the_table: Callable[..., None]) -> None:
    fuzz(decoders[name], 1500, repeatable=False)
    in_the_table("damaged documents at every decoder", times=1500 + len(RAW), lost=[])
