"""The noise on a study's tables (``tables``): the miner's secret for it, and the noisy tables, once and for all.

Promises
- Each study has a secret of its own, 32 random bytes, made when its noise is first drawn and on the disk before it is used:

      key of the noise = HKDF-SHA-256(secret, info = "verticil/noisy-tables/v1" ‖ L(effective digest) ‖ L(binding))

  with L(x) = length of x as uint32 big-endian ‖ x, and the binding of `verticil.miner.storage.noisy_table_files`, which names the
  columns. So a study whose noise is drawn again after a kill gets the same, and no two studies, and no two versions of columns,
  share it.
- The noisy tables are on the disk before anything is learned from them; they are read back, not held. What is learned from sees
  neither the secret nor the exact tables: those are a file for a moment, and are removed.
- A secret is never replaced: where it is gone and the study has got as far as being learned from noisy tables, the study fails.
  The secret and the noisy tables go with the columns (`retention`).

- What a release says of the columns besides is no function of their values: its receipts are signed anew without the SHA-256 of
  what was received (`without_digest`), by which somebody who knows the others' values could try those of one person.

The secret lies beside the columns and is as delicate: with it and what was published somebody could take the noise out. It is in
whatever copies the state directory. In trials with a seed it is derived from that, from the file that the trial put there.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

import rfc8785

from verticil.miner.rules.session import timestamp
from verticil.miner.scheduler.job import ColumnFile, TablesFile
from verticil.miner.storage.noisy_table_files import binding_of_tables, read_tables, write_tables
from verticil.miner.storage.records import StoredSignature
from verticil.miner.storage.store import StudyFiles, remove_durably, write_durably
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.joint.coarse import noised_in_sets
from verticil.shared.study.canonical import digest
from verticil.shared.study.document import Study
from verticil.shared.study.tables import coarse_pairs, set_sigmas, table_sigmas, tables_sigma

_PURPOSE: Final = b"verticil/noisy-tables/v1"
_SIZE: Final = 32

_log: Final = logging.getLogger(__name__)


def without_digest(
    receipt: StoredSignature, sign: Callable[[bytes], StoredSignature], at: dt.datetime
) -> StoredSignature:
    """Return the miner's receipt of a column as a release of noisy tables has it: all but the SHA-256 of the bytes.

    Args:
        receipt: as the party has it.
        sign: signs a statement of the miner.
        at: UTC now; stands for the moment of reception where the miner's certificate is another by now.
    """
    fields = cast("dict[str, str]", json.loads(receipt.body))
    del fields["artifact_sha256"]
    signed = sign(rfc8785.dumps(fields))
    if signed.certificate != receipt.certificate:
        signed = sign(rfc8785.dumps({**fields, "received_at": timestamp(at)}))
    return signed


class TableNoise:
    """Of one study.

    Args:
        files: the study's.
        study: the effective study.
        columns: stored, of every unit in order.
        n_common: records in each.
        seed: in trials, the file with the seed.
    """

    def __init__(
        self,
        files: StudyFiles,
        study: Study,
        columns: Sequence[ColumnFile],
        n_common: int,
        *,
        seed: Path | None = None,
    ) -> None:
        self._files, self._study, self._n_common, self._seed = files, study, n_common, seed
        hashes = [column.sha256 for column in columns]
        self.exact = TablesFile(path=files.learning / "tables", binding=binding_of_tables(study, hashes, n_common, 0.0))
        self.noisy = TablesFile(
            path=files.noisy_tables, binding=binding_of_tables(study, hashes, n_common, tables_sigma(study))
        )

    def has_noisy_tables(self) -> bool:
        """Return whether the noisy tables are there; what cannot be used is told, and made again with the same noise. Blocks."""
        try:
            read_tables(self.noisy.path, self._study, self._n_common, self.noisy.binding, noisy=True)
        except FileNotFoundError:
            return False
        except DataFault as error:
            _log.warning("%s; they are made again", error)
            return False
        return True

    def draw(self, *, again: bool) -> None:
        """Make the noisy tables from the exact ones, which are removed. Blocks.

        Args:
            again: the study was learned from noisy tables before, so its secret must be there.

        Raises:
            DataFault: STATE_CORRUPT, the exact tables are not those that were counted, or the secret is lost; DISK_FULL.
        """
        secret = self._secret(again=again)
        tables = read_tables(self.exact.path, self._study, self._n_common, self.exact.binding, noisy=False)
        key = derived_key(secret, _PURPOSE, digest(self._study), self.noisy.binding)
        pairs, sigmas = coarse_pairs(self._study), table_sigmas(self._study)
        noisy = noised_in_sets(tables, pairs, key, sigma=sigmas, coarse_sigma=set_sigmas(self._study).coarse)
        write_tables(self.noisy.path, noisy, self.noisy.binding)
        remove_durably(self.exact.path)

    def _secret(self, *, again: bool) -> bytes:
        path = self._files.noise_key
        try:
            text = path.read_text(encoding="ascii")
        except FileNotFoundError:
            if again:
                raise self._describe_loss(path, "is gone") from None
        except (OSError, UnicodeDecodeError):
            raise self._describe_loss(path, "cannot be read") from None
        else:
            return self._parse(path, text)
        self._files.prepare_tables()
        if self._seed is None:
            value = secrets.token_bytes(_SIZE)
        else:
            value = derived_key(self._parse(self._seed, self._seed.read_text(encoding="ascii")), digest(self._study))
        write_durably(path, f"{value.hex()}\n".encode("ascii"))
        return value

    def _parse(self, path: Path, text: str) -> bytes:
        digits = text.strip()
        if len(digits) != 2 * _SIZE or set(digits) - set("0123456789abcdef"):
            raise self._describe_loss(path, f"is not {2 * _SIZE} hexadecimal digits")
        return bytes.fromhex(digits)

    def _describe_loss(self, path: Path, problem: str) -> DataFault:
        return DataFault(
            "STATE_CORRUPT",
            f"study '{self._study.id}': the secret of the noise on its tables ({path.name}) {problem}",
            hint="restore the newest backup of the miner's whole state; else the study has to be submitted again under a new id, "
            "is charged again, and gets other noise",
        )
