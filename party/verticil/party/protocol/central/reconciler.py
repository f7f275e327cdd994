"""What the miner shows of a study whose randomized columns it gets: receipts that it signed (Model II)."""

from __future__ import annotations

from verticil.party.protocol.reconciliation.columns import columns_from_miner
from verticil.party.protocol.reconciliation.reconciler import Reconciler

_RECEIPT = "the miner's signed receipt of the column, or of its deletion, beside the approval that this party signed"

RECONCILER = Reconciler(
    evidence={
        "randomized-column": _RECEIPT,
        **dict.fromkeys(
            ("noisy-tables", "layered-counts"), f"{_RECEIPT}: the tables are charged with the first column that leaves"
        ),
    },
    from_miner=columns_from_miner,
)
