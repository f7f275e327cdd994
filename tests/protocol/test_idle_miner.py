"""A miner that waits reads each open study once a look, and decodes none again, however many there are."""

from __future__ import annotations

import hashlib

import pytest

from support import party_session as session
from verticil.miner.rules import session as rules
from verticil.shared.study import canonical
from verticil.shared.study.reading import read_study

pki, federation = session.pki, session.federation
N_STUDIES = 80


async def test_a_look_at_many_open_studies_reads_each_once(
    federation: session.Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert federation.node is not None
    catalogue, scheduler = federation.node.catalogue, federation.node.scheduler
    path = federation.root / "study.toml"
    for number in range(N_STUDIES):
        path.write_text(session.STUDY.replace('id = "', f'id = "n{number}-', 1))
        proposal = canonical.to_bytes(read_study(path))
        digest = hashlib.sha256(proposal).digest()
        catalogue.add_study(
            digest, study_id=f"n{number}", proposal=proposal, submitter="lee", at="2026-11-22T00:00:00Z"
        )
    done: list[str] = []
    decode, read = canonical.from_bytes, catalogue.study

    def decoding(data: bytes) -> object:
        done.append("decode")
        return decode(data)

    def reading(digest: bytes) -> object:
        done.append("read")
        return read(digest)

    for digest in catalogue.unsettled():
        scheduler._update_state(digest)
    monkeypatch.setattr("verticil.miner.rules.session.canonical.from_bytes", decoding)
    monkeypatch.setattr(catalogue, "study", reading)
    for digest in catalogue.unsettled():
        scheduler._update_state(digest)
    assert (done.count("decode"), done.count("read")) == (0, N_STUDIES)


def test_decoded_studies_are_forgotten_beyond_a_size_and_not_before(
    monkeypatch: pytest.MonkeyPatch, release_study
) -> None:
    monkeypatch.setattr(rules, "_DECODED_BYTES", 2 * len(canonical.to_bytes(release_study)))
    studies, encoded = rules.DecodedStudies(), canonical.to_bytes(release_study)
    first = studies.decode(b"a", encoded)
    studies.decode(b"b", encoded)
    assert studies.decode(b"a", encoded) is first
    studies.decode(b"c", encoded)
    assert studies.decode(b"a", encoded) is first
    studies.decode(b"d", encoded)
    studies.decode(b"e", encoded)
    assert studies.decode(b"a", encoded) is not first
