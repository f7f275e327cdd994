"""What the people of a site do for a study between peers (Model I): load it, and take its release.

As in `commands` every function opens the site's state, does one thing and closes it; a daemon may run beside it.
"""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from verticil.party.audit.log import Event, What
from verticil.party.config import PartyConfig
from verticil.party.policy.approval_checks import check_expiry
from verticil.party.protocol.with_peers.publication import release_folder
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.release.verification import verify_release
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import rename
from verticil.shared.study.canonical import digest as digest_of
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.protocols import PROTOCOLS, protocol_of
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State, is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedStudy:
    """A study that was loaded, whose digest is to be compared with the other operators'; `new`: not known here before."""

    study: str
    digest: str
    parties: tuple[str, ...]
    state: str
    new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRelease:
    """A verified release that was copied, and where the authority's certificate lies beside it."""

    study: str
    digest: str
    release: str
    ca_certificate: str
    common_records: int
    files: tuple[str, ...]


def load_study(
    config: PartyConfig, study: Path | Study, *, at: dt.datetime | None = None, allow_unreviewed: bool = False
) -> LoadedStudy:
    """Load a study between peers; every operator loads the same. Nothing leaves before it is approved, here and at all others.

    Args:
        config: party.toml.
        study: study.toml, or what was read from it.
        at: now.
        allow_unreviewed: load a draft that its author has not reviewed, too: for a simulation, whose parties are one person's.

    Raises:
        Misuse: STUDY_INVALID and others, the study; UNREVIEWED; STUDY_UNSUPPORTED, it is not one between peers; CONFIG_INVALID,
            this party or a peer cannot be reached; STUDY_EXISTS, another study has its id, or it ended without a release.
        PeerFault: PARTY_UNKNOWN, this party is not in it.
        Refusal: STUDY_EXPIRED.
        DataFault: whatever is wrong with the state.
    """
    now = at if at is not None else utc_now()
    document = study if isinstance(study, Study) else read_study(study)
    if not allow_unreviewed:
        require_reviewed(document)
    digest = digest_of(document)
    _check(config, document)
    check_expiry(document, now.date())
    with Site.open(config) as site, site.database.transaction():
        records = {record.digest: record for record in site.state.studies()}
        for record in records.values():
            if (
                record.study_id == document.id
                and record.digest != digest
                and not protocol_of(record.task.proposal_study).coordinated
            ):
                raise Misuse(
                    "STUDY_EXISTS",
                    f"study '{document.id}': another one with this id was loaded, digest {record.digest.hex()},"
                    f" this one has {digest.hex()}",
                    hint="an id names one study for good: give this one a new id, in the file of every party",
                )
        state = State(records[digest].task.state) if digest in records else State.AWAITING_APPROVAL
        if is_final(state) and state is not State.PUBLISHED:
            raise Misuse(
                "STUDY_EXISTS",
                f"study '{document.id}': it was loaded before and has ended here: {records[digest].stage}",
                hint="to try again, give it a new id in the file of every party; why it ended: verticil party status",
            )
        if digest not in records:
            event = Event(what=What.STUDY_SEEN, who="operator", study=digest, study_id=document.id)
            site.audit.record(event, now)
            task = Task(digest=digest, version=0, state=State.AWAITING_APPROVAL, proposal=to_bytes(document))
            site.state.remember(task, document.id, now)
            site.state.show(digest, "loaded", at=now)
    return LoadedStudy(
        study=document.id,
        digest=digest.hex(),
        parties=tuple(document.parties),
        state=state.name.lower(),
        new=digest not in records,
    )


def _check(config: PartyConfig, study: Study) -> None:
    where, federation = config.path.name, config.federation
    if protocol_of(study).coordinated:
        names = " or ".join(f"'{item.name}'" for item in PROTOCOLS if not item.coordinated)
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': model '{study.model}', expected {names}",
            hint="a study with a miner is submitted to it: verticil study submit",
        )
    if config.name not in study.parties:
        raise PeerFault(
            "PARTY_UNKNOWN",
            f"study '{study.id}': party '{config.name}' is not in it, expected one of {', '.join(study.parties)}",
            hint="name in party.toml must be the party's name in the study",
        )
    if config.peer is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"{where}: peer: missing, and study '{study.id}' is one between peers",
            hint="say in [peer] where this party serves its peers: listen and advertise, or relay = true",
        )
    if missing := [name for name in study.parties if name != config.name and name not in federation.peers]:
        raise Misuse(
            "CONFIG_INVALID",
            f"federation.toml: peers: {', '.join(missing)} missing, and study '{study.id}' names them",
            hint='every party of a study between peers has its host:port in [peers], or "relay"',
        )
    if protocol_of(study).searches_scores(study) and federation.endpoint is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"federation.toml: miner: missing, and the structure of study '{study.id}' is to be learned",
            hint="name in [miner] the coordinator that searches it, or give the structure in the study",
        )


def take_release(config: PartyConfig, study: str, out: Path) -> TakenRelease:
    """Verify a published release and copy it out of the state directory; the authority's certificate is put beside it.

    Args:
        config: party.toml.
        study: id or digest.
        out: folder to make.

    Raises:
        Misuse: STUDY_UNKNOWN; FILE_EXISTS; FILE_MISSING, it cannot be written there.
        PeerFault: NOT_READY, it is not published.
        GateFailed: RELEASE_INVALID, the copy in the state directory was changed.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        folder = release_folder(site, record.digest)
    if record.task.state != State.PUBLISHED or not folder.is_dir():
        why = record.failure.message if record.failure is not None else record.stage
        raise PeerFault(
            "NOT_READY", f"study '{record.study_id}': no release yet: {why}", hint="see: verticil party status"
        )
    if out.exists():
        raise Misuse("FILE_EXISTS", f"{out}: exists already", hint="name another folder")
    authority = config.federation.authority()
    release = verify_release(folder, ca_certificate=authority)
    copy_release(folder, out, authority)
    return TakenRelease(
        study=record.study_id,
        digest=record.digest.hex(),
        release=str(out),
        ca_certificate=str(out.with_name("ca.crt")),
        common_records=release.common_records,
        files=tuple(sorted(path.name for path in out.iterdir())),
    )


def copy_release(folder: Path, out: Path, authority: bytes) -> None:
    """Copy a release, whole or not at all, and put the authority's certificate beside it as ``ca.crt``.

    Args:
        folder: of the release.
        out: folder to make.
        authority: the certificate, PEM.

    Raises:
        Misuse: FILE_MISSING, it cannot be written there.
        DataFault: DISK_FULL.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as staging:
            copy = Path(staging) / "release"
            copy.mkdir()
            for path in folder.iterdir():
                shutil.copyfile(path, copy / path.name)
            beside = Path(staging) / "ca.crt"
            beside.write_bytes(authority)
            rename(copy, out)
            rename(beside, out.with_name("ca.crt"))
    except OSError as error:
        raise write_fault(error, out) from None
