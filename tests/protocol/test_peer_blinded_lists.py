"""Linkage dh-psi between peers: lists go round the ring, and everybody finds its own people among the common ones.

Three parties in one event loop, as in test_peer_session.py. Parties share some people with one other party only, so that the common
list is not any party's own.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from verticil.shared.study.states import State

_NAME = "peer_session_for_blinded_lists"
_spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("test_peer_session.py"))
assert _spec is not None
assert _spec.loader is not None
session = importlib.util.module_from_spec(_spec)
sys.modules[_NAME] = session
_spec.loader.exec_module(session)

pki, make = session.pki, session.make
NAMES, N_COMMON = session.NAMES, session.N_COMMON
STUDY = session.STUDY.replace("[linkage]\n", '[linkage]\nmode = "dh-psi"\n')


@pytest.fixture
def federation(make):
    return make(study=STUDY)


async def test_feature_14_dh_psi_between_peers(federation):
    federation.load()
    federation.open()
    await federation.run()
    for name in NAMES:
        print(federation.record(name).failure, federation.stage(name))
        assert (federation.record(name).task.state, federation.record(name).n_common) == (State.PUBLISHED, N_COMMON)
    assert len(set(federation.manifests().values())) == 1
