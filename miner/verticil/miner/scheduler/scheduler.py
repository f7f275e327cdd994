"""The miner's work between calls: alignment, learning, publication, expiry, deletion.

One loop looks at the facts of every study that is not settled and does the next thing that follows from them; it is woken by
every change and otherwise looks again now and then. Whatever it does is done completely or has to be done again, and doing it
again gives the same result, so there is nothing to recover after a crash. A study that cannot go on fails with a code, or, where
the machine is at fault and may recover (a full disk), waits and says so.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import functools
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, cast

from verticil.miner.rules.leases import Changes, Leases
from verticil.miner.rules.message_rounds import MessageRounds
from verticil.miner.rules.quorum import at_deadline, discard_left_out
from verticil.miner.rules.session import Session, awaited_parties, timestamp
from verticil.miner.scheduler.job import ColumnFile, CountingJob, LearningJob, TablesFile
from verticil.miner.scheduler.learning import Executor, WorkerDied
from verticil.miner.scheduler.retention import Retention
from verticil.miner.scheduler.table_noise import TableNoise, without_digest
from verticil.miner.storage.linkage import find_common, linked_parties
from verticil.miner.storage.records import Failure, ReleaseFile, StoredColumn, StudyRecord
from verticil.miner.storage.store import NOISE_SEED, remove_durably, replace_durably
from verticil.shared.core.errors import Refusal, VerticilError
from verticil.shared.core.threads import to_the_end
from verticil.shared.release.manifest import MANIFEST, SIGNATURE, Signer, sign_release
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import State, is_final

_log: Final = logging.getLogger(__name__)
_TICK_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 30.0
_MAX_ATTEMPTS: Final = 3
_RECOVERABLE: Final = frozenset({"DISK_FULL", "FILES_EXHAUSTED", "RESOURCE_EXHAUSTED"})


def _received_at(column: StoredColumn) -> dt.datetime:
    body = cast("dict[str, str]", json.loads(column.receipt.body))
    return dt.datetime.fromisoformat(body["received_at"])


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    """End tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Scheduler:
    """Takes every study as far as its facts allow.

    Args:
        session: the rules.
        changes: wakes the loop, and is notified of changes.
        leases: progress to forget at a study's end.
        executor: runs learning jobs.
        rounds: of the studies that have some.
        signer: signs releases.
        randomized_days: days after publication until the randomized columns are deleted.
        simulation: releases say that everything ran on one machine.
        seed_derived: releases say that the parties' secrets come from a seed.
        keep: called at each look: writes down what is only in memory.
    """

    def __init__(
        self,
        session: Session,
        changes: Changes,
        leases: Leases,
        executor: Executor,
        rounds: MessageRounds,
        *,
        signer: Signer,
        randomized_days: int,
        simulation: bool = False,
        seed_derived: bool = False,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        self._keep = keep
        self._session = session
        self._changes = changes
        self._leases = leases
        self._executor = executor
        self._rounds = rounds
        self._signer = signer
        self._authority = session.authority
        self._retention = Retention(session, randomized_days=randomized_days)
        self._simulation = simulation
        self._seed_derived = seed_derived
        self._jobs: dict[bytes, asyncio.Task[None]] = {}
        self._driven: dict[bytes, asyncio.Task[None]] = {}
        self._details: dict[bytes, str] = {}

    def detail(self, study: bytes) -> str:
        """Return what is being done for a study, for people; empty when nothing is."""
        return self._details.get(study, "")

    async def run(self) -> None:
        """Work until cancelled; running jobs are stopped then."""
        try:
            await self._visit_all(self._clean)
            while True:
                generation = self._changes.generation
                await self._visit_all(self.advance)
                if self._changes.closed:
                    await asyncio.Event().wait()  # no new work while the miner stops
                await self._changes.wait(generation, _TICK_SECONDS)
        finally:
            await _cancel(*self._jobs.values(), *self._driven.values())

    async def _visit_all(self, work: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            await asyncio.to_thread(self._keep)
            waiting = await asyncio.to_thread(self._session.catalogue.unsettled)
        except VerticilError as error:
            _log.warning("%s; looking again", error)
            return
        except Exception:  # noqa: BLE001 (what cannot be read now may be readable at the next look)
            _log.exception("the catalogue cannot be read")
            return
        for digest in waiting:
            try:
                await work(digest)
            except VerticilError as error:  # such as a full disk, on which not even a failure can be recorded
                _log.warning("study %s: %s; looking again", digest.hex(), error)
            except Exception:  # noqa: BLE001 (one study must not stop the others)
                _log.exception("study %s: cannot be worked with", digest.hex())

    async def _clean(self, digest: bytes) -> None:
        await asyncio.to_thread(self._session.intake.remove_abandoned, digest)

    async def advance(self, digest: bytes) -> None:
        """Do what follows for one study. Not at the same time as `run`."""
        await self._guard(digest, self._start_due_work)

    async def _guard(self, digest: bytes, work: Callable[[bytes], Awaitable[None]]) -> None:
        """Do work for a study; what cannot be recovered from ends the study."""
        try:
            await work(digest)
        except VerticilError as error:
            _log.warning("study %s: %s", digest.hex(), error)
            if error.code in _RECOVERABLE:
                self._details[digest] = f"waiting: {error.code}"
                return
            await self._fail(digest, Failure.of(error))
        except Exception as error:  # noqa: BLE001 (one study must not stop the others)
            _log.exception("study %s: unexpected error", digest.hex())
            message = f"{type(error).__name__} at the miner"
            await self._fail(digest, Failure(code="INTERNAL", message=message, hint="see the miner's log"))

    async def _start_due_work(self, digest: bytes) -> None:
        state, open_round, has_changed = await to_the_end(self._update_state, digest)
        if has_changed:
            self._changes.notify()
        if digest not in self._jobs and digest not in self._driven:
            self._details.pop(digest, None)
        if open_round and digest not in self._driven:
            driver = asyncio.create_task(self._guard(digest, self._take_round_on), name=f"round {digest.hex()[:12]}")
            self._driven[digest] = driver
            driver.add_done_callback(lambda _driven: self._driven.pop(digest, None))
        if state is State.REVIEW and (names := await asyncio.to_thread(self._awaited_parties, digest)):
            self._details[digest] = f"waiting for countersignatures: {', '.join(names)}"
        elif state in {State.ESTIMATING, State.LEARNING, State.REVIEW} and digest not in self._jobs:
            job = asyncio.create_task(self._learn(digest), name=f"learn {digest.hex()[:12]}")
            self._jobs[digest] = job
            job.add_done_callback(lambda _job: self._jobs.pop(digest, None))
        if is_final(state):
            await _cancel(*self._tasks(digest, with_round=not open_round))
            self._details.pop(digest, None)
            self._leases.forget(digest)
            if not open_round:
                await to_the_end(self._rounds.end, digest)
            await to_the_end(self._retention.settle, digest)
            if digest not in await asyncio.to_thread(self._session.catalogue.unsettled):
                self._changes.notify()  # a party that revoked gets the statement of what was deleted

    def _tasks(self, digest: bytes, *, with_round: bool) -> list[asyncio.Task[None]]:
        """Return what is being done for a study."""
        tasks = [self._jobs.get(digest), self._driven.get(digest) if with_round else None]
        return [task for task in tasks if task is not None]

    async def _take_round_on(self, digest: bytes) -> None:
        """Take a round of messages as far as it goes, again when something has arrived, and in every slot."""
        while not self._changes.closed:
            generation = self._changes.generation
            new = await to_the_end(self._rounds.advance, digest)
            if (open_round := self._rounds.under_way(digest)) is not None and digest not in self._jobs:
                self._details[digest] = open_round.words
            if new:
                self._changes.notify()
            elif open_round is None:
                return
            else:
                await self._changes.wait(generation, min(open_round.slot_seconds, _TICK_SECONDS))

    def _awaited_parties(self, digest: bytes) -> tuple[str, ...]:
        return awaited_parties(self._session, self._session.record(digest))

    async def _fail(self, digest: bytes, failure: Failure) -> None:
        if await asyncio.to_thread(self._session.catalogue.fail, digest, failure):
            self._changes.notify()  # only of news: this wakes the loop that came here

    def _update_state(self, digest: bytes) -> tuple[State, bool, bool]:
        """Do the next thing that needs no waiting; the state after it, whether there is a round, and a new fact. Blocks."""
        session, catalogue = self._session, self._session.catalogue
        record = session.record(digest)
        before = record.version
        session.fix_effective(record)
        record = session.latest(record)
        state = session.state(record)
        if state is State.EXPIRED and not record.expired:
            catalogue.expire(digest)
        if state is State.ALIGNING and record.n_common is None:
            self._align(record)
        at_deadline(session, record)
        record = session.latest(record)
        if record.sub_model is not None and not is_final(session.state(record)):
            discard_left_out(session, record)
        return session.state(record), self._rounds.is_open(record), record.version != before

    def _align(self, record: StudyRecord) -> None:
        session = self._session
        study = session.current(record)
        if linked_parties(record, study) != frozenset(study.parties):
            return
        files = session.store.study(record.digest)
        minimum = session.minimum(record)
        positions = {party: index for index, party in enumerate(session.proposal(record).parties)}
        n_common = find_common(files, session.catalogue, record, study, positions=positions, minimum=minimum)
        if n_common < minimum:
            raise Refusal(
                "LINKAGE_TOO_SMALL",
                f"the parties have fewer records in common than the required minimum of {minimum}",
                hint="check that all parties use the same linkage key and the same kind of id",
            )

    # -- learning ------------------------------------------------------------------------------------------------------------

    async def _learn(self, digest: bytes) -> None:
        """Learn, sign, publish; ends without a word when the study has ended otherwise."""
        while True:
            try:
                await self._learn_once(digest)
                return
            except WorkerDied as death:
                attempts = await asyncio.to_thread(self._session.catalogue.add_attempt, digest)
                _log.warning("study %s: %s (attempt %d of %d)", digest.hex(), death, attempts, _MAX_ATTEMPTS)
                if attempts >= _MAX_ATTEMPTS:
                    message = (
                        f"the learning process ended {attempts} times without a result, last with status {death.status}"
                    )
                    hint = "the miner's operator should look for a memory limit or another reason to end processes"
                    await self._fail(digest, Failure(code="LEARNING_FAILED", message=message, hint=hint))
                    return
            except VerticilError as error:
                _log.warning("study %s: %s", digest.hex(), error)
                if error.code == "STATE_CORRUPT" and await to_the_end(self._asks_again, digest):
                    self._changes.notify()
                    return  # with the last column that comes, learning begins anew
                if error.code not in _RECOVERABLE:
                    await self._fail(digest, Failure.of(error))
                    return
                self._details[digest] = f"waiting: {error.code}"
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception as error:  # noqa: BLE001 (one study must not stop the others)
                _log.exception("study %s: unexpected error while learning", digest.hex())
                message = f"learning ended with {type(error).__name__}"
                await self._fail(digest, Failure(code="LEARNING_FAILED", message=message, hint="see the miner's log"))
                return

    async def _learn_once(self, digest: bytes) -> None:
        session = self._session
        record = await asyncio.to_thread(session.record, digest)
        files = session.store.study(digest)
        if not await to_the_end(self._has_valid_release, files.release):
            await self._enter(digest, "estimating")
            job = await to_the_end(self._learning_job, record)
            if (noise := self._noise(job)) is not None:
                job = await self._with_noise(record, job, noise)

            def progress(stage: str, percent: int) -> None:
                self._details[digest] = f"{stage} {percent} %"
                if stage == "searching" and percent == 0:
                    entering.append(asyncio.create_task(self._enter(digest, "learning")))

            entering: list[asyncio.Task[None]] = []
            try:
                await self._executor.run(job, progress)
            finally:
                await asyncio.gather(*entering)
            self._details[digest] = "signing"
            await to_the_end(self._sign, job.target, files.release)
        if await to_the_end(self._wait_for_parties, digest, files.release):
            _log.info("study %s: the release waits for countersignatures", digest.hex())
        elif await to_the_end(self._publish, digest, files.release):
            _log.info("study %s: published", digest.hex())
        self._changes.notify()

    def _asks_again(self, digest: bytes) -> bool:
        """Return whether columns were found damaged, and their parties are asked for the same bytes once more. Blocks."""
        session = self._session
        if session.catalogue.add_attempt(digest) >= _MAX_ATTEMPTS:
            return False
        units = session.effective(session.record(digest)).units
        lost_units = session.intake.lose_damaged(session.record(digest))
        for index in lost_units:
            names, owner = ", ".join(units[index].variables), units[index].owner
            _log.warning(
                "study %s: column '%s' was damaged on this disk, '%s' is asked again", digest.hex(), names, owner
            )
        return bool(lost_units)

    async def _enter(self, digest: bytes, stage: str) -> None:
        await asyncio.to_thread(self._session.catalogue.set_learning, digest, stage)
        self._changes.notify()

    def _learning_job(self, record: StudyRecord) -> LearningJob:
        session = self._session
        effective = session.effective(record)
        files = session.store.study(record.digest)
        remove_durably(files.learning)
        files.learning.mkdir(mode=0o700)
        masked = opens_tables(effective)  # no column comes, and nobody gets a receipt
        columns = [] if masked else [record.columns[unit] for unit in range(len(effective.units))]
        receipts = [item.receipt for item in columns]
        started_at = max([session.clock(), *map(_received_at, columns)])  # a clock may have been set back
        if effective.tables is not None:
            receipts = [without_digest(receipt, session.sign, started_at) for receipt in receipts]
        return LearningJob(
            proposal_digest=record.digest,
            effective=record.effective,
            n_common=record.n_common or 0,
            columns=tuple(
                ColumnFile(
                    path=files.column(item.unit, item.item_bytes), item_bytes=item.item_bytes, sha256=item.column_sha256
                )
                for item in columns
            ),
            receipts=tuple(receipts),
            proposal=b"" if record.sub_model is None else record.proposal,
            sub_model=record.sub_model,
            target=files.learning / "release",
            started_at=started_at,
            simulation=self._simulation,
            seed_derived=self._seed_derived,
            checkpoint=files.checkpoint,
            tables=TablesFile(path=self._rounds.tables(record), binding=self._rounds.binding(record))
            if masked
            else None,
        )

    def _noise(self, job: LearningJob) -> TableNoise | None:
        """Return the noise of a study whose noisy tables the miner makes; None: it learns from columns, or from opened tables."""
        study = canonical.from_bytes(job.effective, wire=False)
        if study.tables is None or job.tables is not None:
            return None
        store = self._session.store
        seed = store.root / NOISE_SEED
        return TableNoise(
            store.study(job.proposal_digest),
            study,
            job.columns,
            job.n_common,
            seed=seed if self._seed_derived and seed.exists() else None,
        )

    async def _with_noise(self, record: StudyRecord, job: LearningJob, noise: TableNoise) -> LearningJob:
        """Return the job without columns, when the noisy tables are on the disk: drawn now, or there from before."""
        if not await to_the_end(noise.has_noisy_tables):
            self._details[record.digest] = "counting"
            counting = CountingJob(
                effective=job.effective, n_common=job.n_common, columns=job.columns, target=noise.exact
            )
            await self._executor.run(counting, lambda _stage, _percent: None)
            await to_the_end(functools.partial(noise.draw, again=record.learning == "learning"))
        await self._enter(record.digest, "learning")
        return dataclasses.replace(job, columns=(), tables=noise.noisy)

    def _has_valid_release(self, release: Path) -> bool:
        """Return whether a signed release is there from before a crash; one that does not hold is removed."""
        if not release.exists():
            return False
        try:
            verify_release(release, ca_certificate=self._authority, before_publication=True)
        except VerticilError as error:
            _log.warning("release is made anew: %s", error)
            remove_durably(release)
            return False
        return True

    def _sign(self, draft: Path, release: Path) -> None:
        sign_release(draft, self._signer, ca_certificate=self._authority)
        verify_release(draft, ca_certificate=self._authority, before_publication=True)
        replace_durably(draft, release)

    def _wait_for_parties(self, digest: bytes, release: Path) -> bool:
        """Return whether the release has to wait for countersignatures; from then on the parties can fetch it."""
        session = self._session
        study = session.current(session.record(digest))
        if study.countersignatures_needed == 0:
            return False
        manifest_sha256 = hashlib.sha256((release / MANIFEST).read_bytes()).digest()
        session.catalogue.reviews.begin(digest, manifest_sha256, self._list_files(release))
        return bool(awaited_parties(session, session.record(digest)))

    def _publish(self, digest: bytes, release: Path) -> bool:
        session = self._session
        countersignatures = session.record(digest).countersignatures
        if countersignatures:
            # The same bytes whenever it is done: a crash before the catalogue knows of it does no harm.
            statements = [item for _, item in sorted(countersignatures.items())]
            sign_release(release, self._signer, ca_certificate=self._authority, countersigned=statements)
            verify_release(release, ca_certificate=self._authority)
        return session.catalogue.publish(digest, self._list_files(release), at=timestamp(session.clock()))

    def _list_files(self, release: Path) -> list[ReleaseFile]:
        """Return the files of a release that may be handed out."""
        manifest = (release / MANIFEST).read_bytes()
        entries = cast("dict[str, dict[str, str | int]]", json.loads(manifest)["files"])
        files = [
            ReleaseFile(path=name, size=int(entry["bytes"]), sha256=bytes.fromhex(str(entry["sha256"])))
            for name, entry in entries.items()
        ]
        for name in (MANIFEST, SIGNATURE):
            data = (release / name).read_bytes()
            files.append(ReleaseFile(path=name, size=len(data), sha256=hashlib.sha256(data).digest()))
        return files
