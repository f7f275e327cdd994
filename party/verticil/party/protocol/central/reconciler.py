"""What the miner shows of a study whose randomized columns it gets: receipts that it signed (Model II)."""

from __future__ import annotations

from verticil.party.protocol.reconciliation.columns import columns_from_miner
from verticil.party.protocol.reconciliation.reconciler import Reconciler

_RECEIPT = "the miner's signed receipt of the column, or of its deletion, beside the approval that this party signed"

RECONCILER = Reconciler(
    evidence={
        "randomized-column": _RECEIPT,
        "noisy-tables": f"{_RECEIPT}: the tables are charged with the first column that leaves",
        "layered-counts": f"{_RECEIPT}; of measured bins, which are charged before the approval leaves, the approval alone",
    },
    from_miner=columns_from_miner,
)
