"""Model I with a learned structure: the miner as a coordinator that holds no data (issue 3; Ma & Sivakumar, section 4).

Each party sends the information of the pairs that it scores and nothing else; when those of all parties are there, the structure
is searched, signed and sent to every party that asks, as often as it asks. The study is the effective one that the parties
agreed on among themselves; it is named by its digest. Parties that mean different studies would wait for each other in vain,
which their own comparison of digests precludes.

Order rules. A party's first scores stay; others for the same study are refused. The search begins with the last party's scores
and ends with a structure or a failure; the first end stays. Every answer follows from durable facts alone, so a miner that was
killed goes on where it stood: a search that was under way goes on from its checkpoint and, being a function of scores and study,
ends alike.
Nothing blocks the event loop.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import logging
import threading
from collections import OrderedDict
from typing import Final

from verticil.miner.rules.leases import Changes
from verticil.miner.rules.session import Session
from verticil.miner.scheduler.learning import Executor, WorkerDied
from verticil.miner.scheduler.structure_job import StructureJob
from verticil.miner.storage.records import Failure, ScoredStudy
from verticil.miner.storage.store import remove_durably
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.peer import scored_pairs
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.structure_document import NANONATS, parse_structure
from verticil.wire.v1 import coordinator_pb2

MAX_INFORMATION: Final = 20 * NANONATS
"""More than the mutual information of two variables of 2^16 categories can be (11.1 nats)."""
MAX_STUDY_BYTES: Final = 2_097_152
"""With the scores of a thousand variables' pairs the request stays below 4 MiB where one party scores them all."""
_MAX_WAIT_SECONDS: Final = 60
_TICK_SECONDS: Final = 30.0
_MAX_ATTEMPTS: Final = 3
_RECOVERABLE: Final = frozenset({"DISK_FULL", "FILES_EXHAUSTED", "RESOURCE_EXHAUSTED"})
_CACHED_STUDIES: Final = 16

_log: Final = logging.getLogger(__name__)


class Scores:
    """Takes scores, has structures searched, tells them.

    Args:
        session: facts, files, the clock, and the signature of structures. A checkpoint is removed when its search has ended.
        executor: runs searches.
        changes: wakes callers that wait, and is notified of changes.
    """

    def __init__(self, session: Session, executor: Executor, changes: Changes) -> None:
        self._checkpoints = session.store.searches
        self._table = session.catalogue.scores
        self._executor = executor
        self._changes = changes
        self._sign = session.sign
        self._clock = session.clock
        self._studies: OrderedDict[bytes, Study] = OrderedDict()
        self._lock = threading.Lock()
        self._jobs: dict[bytes, asyncio.Task[None]] = {}

    async def put(self, party: str, request: coordinator_pb2.PutScoresRequest) -> coordinator_pb2.PutScoresReply:
        """Record a party's scores and tell where the study stands, once it has ended or after ``wait_seconds``.

        Raises:
            PeerFault: MESSAGE_INVALID, not a study between peers whose structure is to be learned, or not scores of its pairs;
                PARTY_UNKNOWN, the caller is not in it; STUDY_MISMATCH, the caller sent other scores before;
                RESOURCE_EXHAUSTED, too many studies.
            Refusal: STUDY_EXPIRED.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + min(request.wait_seconds, _MAX_WAIT_SECONDS)
        study, digest, is_new = await asyncio.to_thread(self._take_in, party, request)
        if is_new:
            self._changes.notify()
        while True:
            generation = self._changes.generation
            study_now = await asyncio.to_thread(self._table.study, digest)
            if study_now is None:
                raise _refuse_expired(study)
            if (
                study_now.structure is not None
                or study_now.failure is not None
                or self._changes.closed
                or loop.time() >= end
            ):
                return _reply(study, study_now)
            await self._changes.wait(generation, end - loop.time())

    def _take_in(self, party: str, request: coordinator_pb2.PutScoresRequest) -> tuple[Study, bytes, bool]:
        study, digest = self._study(request.effective)
        if not protocol_of(study).searches_scores(study):
            raise PeerFault(
                "MESSAGE_INVALID",
                f"scores: study '{study.id}' has model '{study.model}' and structure.method '{study.structure.method}', "
                "expected a model whose parties send scores of pairs, and a structure that is learned",
                hint="scores go to the miner only where the parties have it search the structure",
            )
        if party not in study.parties:
            raise PeerFault(
                "PARTY_UNKNOWN",
                f"study '{study.id}': party '{party}' is not in it",
                hint="the certificate's name must be the party's name in the study",
            )
        if study.is_expired(self._today()):
            raise _refuse_expired(study)
        n_scores = len(scored_pairs(study, party))
        if len(request.information) != n_scores:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"scores of party '{party}': {len(request.information)} numbers, expected {n_scores}",
                hint="one for each pair that it scores, both sides in the same version",
            )
        if any(score > MAX_INFORMATION for score in request.information):
            raise PeerFault(
                "MESSAGE_INVALID", f"scores of party '{party}': a number is larger than {MAX_INFORMATION} (20 nats)"
            )
        is_new = self._table.put(
            digest, request.effective, expires=study.expires, party=party, scores=request.information
        )
        return study, digest, is_new

    def _study(self, effective: bytes) -> tuple[Study, bytes]:
        if len(effective) > MAX_STUDY_BYTES:
            raise PeerFault(
                "MESSAGE_INVALID", f"effective study: {len(effective)} bytes, expected at most {MAX_STUDY_BYTES}"
            )
        digest = hashlib.sha256(effective).digest()
        with self._lock:
            study = self._studies.get(digest)
        if study is None:
            study = canonical.from_bytes(effective, source="effective study")
            with self._lock:
                self._studies[digest] = study
                while len(self._studies) > _CACHED_STUDIES:
                    self._studies.popitem(last=False)
        return study, digest

    def _today(self) -> dt.date:
        return self._clock().astimezone(dt.UTC).date()

    # -- searching -----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Have every structure searched whose scores are complete, until cancelled; running searches are stopped then."""
        try:
            while True:
                generation = self._changes.generation
                for digest in await self._complete():
                    if digest not in self._jobs and not self._changes.closed:
                        self._jobs[digest] = asyncio.create_task(
                            self._search(digest), name=f"search {digest.hex()[:12]}"
                        )
                if self._changes.closed:
                    await asyncio.Event().wait()  # no new work while the miner stops
                await self._changes.wait(generation, _TICK_SECONDS)
        finally:
            jobs = tuple(self._jobs.values())
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _complete(self) -> tuple[bytes, ...]:
        try:
            return await asyncio.to_thread(self._look)
        except Exception:  # noqa: BLE001 (such as a full disk: what cannot be done now may be done at the next look)
            _log.exception("the scores cannot be worked with")
            return ()

    def _look(self) -> tuple[bytes, ...]:
        """Return studies whose scores are complete and that have no end yet; those past their last day are forgotten.

        Checkpoints of searches that have ended are removed. Blocks.
        """
        self._table.forget_expired(self._today())
        complete: list[bytes] = []
        open_digests = self._table.unfinished()
        for path in self._checkpoints.iterdir():
            if path.stem not in {digest.hex() for digest in open_digests}:
                remove_durably(path)
        for digest in open_digests:
            scored_study = self._table.study(digest)
            if scored_study is None:
                continue
            try:
                study, _ = self._study(scored_study.effective)
            except VerticilError as error:  # written by another version, whose rules were others
                self._table.fail(digest, Failure.of(error))
                continue
            if not _missing(study, scored_study):
                complete.append(digest)
        return tuple(complete)

    async def _search(self, digest: bytes) -> None:
        try:
            failure = await self._attempts(digest)
            if failure is not None:
                _log.warning("study %s: %s: %s", digest.hex(), failure.code, failure.message)
                await asyncio.to_thread(self._table.fail, digest, failure)
            self._changes.notify()
        except VerticilError as error:  # the machine is at fault and may recover; the next look begins anew
            _log.warning("study %s: waiting: %s", digest.hex(), error)
        finally:
            del self._jobs[digest]

    async def _attempts(self, digest: bytes) -> Failure | None:
        """Search until there is a structure, or a reason why there is none; that one is returned.

        Raises:
            VerticilError: DISK_FULL or RESOURCE_EXHAUSTED.
        """
        while True:
            try:
                await self._search_once(digest)
                return None
            except WorkerDied as death:
                attempts = await asyncio.to_thread(self._table.add_attempt, digest)
                _log.warning("study %s: %s (attempt %d of %d)", digest.hex(), death, attempts, _MAX_ATTEMPTS)
                if attempts >= _MAX_ATTEMPTS:
                    return Failure(
                        code="LEARNING_FAILED",
                        message=f"the search ended {attempts} times without a result, last with status {death.status}",
                        hint="the miner's operator should look for a memory limit or another reason to end processes",
                    )
            except VerticilError as error:
                if error.code in _RECOVERABLE:
                    raise
                return Failure.of(error)
            except Exception as error:  # noqa: BLE001 (one study must not stop the others)
                _log.exception("study %s: unexpected error while searching", digest.hex())
                message = f"the search ended with {type(error).__name__}"
                return Failure(code="LEARNING_FAILED", message=message, hint="see the miner's log")

    async def _search_once(self, digest: bytes) -> None:
        def prepare() -> StructureJob | None:
            scored_study = self._table.study(digest)
            if scored_study is None or scored_study.structure is not None or scored_study.failure is not None:
                return None
            return StructureJob(
                effective=scored_study.effective,
                scores={party: tuple(scores) for party, scores in self._table.scores(digest).items()},
                checkpoint=self._checkpoints / digest.hex(),
            )

        def keep(job: StructureJob, body: bytes) -> None:
            parse_structure(body, self._study(job.effective)[0], digest)
            self._table.finish(digest, self._sign(body))

        job = await asyncio.to_thread(prepare)
        if job is None:
            return
        body = await self._executor.run(job, lambda _stage, _percent: None)
        await asyncio.to_thread(keep, job, body)
        _log.info("study %s: structure found", digest.hex())


def _missing(study: Study, scored_study: ScoredStudy) -> list[str]:
    return [party for party in study.parties if party not in scored_study.parties]


def _reply(study: Study, scored_study: ScoredStudy) -> coordinator_pb2.PutScoresReply:
    reply = coordinator_pb2.PutScoresReply(waiting_for=_missing(study, scored_study))
    if scored_study.structure is not None:
        reply.structure.CopyFrom(scored_study.structure.message)
    if scored_study.failure is not None:
        reply.failure.CopyFrom(scored_study.failure.detail)
    return reply


def _refuse_expired(study: Study) -> Refusal:
    return Refusal("STUDY_EXPIRED", f"study '{study.id}': its last valid day was {study.expires.isoformat()}")
