"""What `study cancel` says of a study that is over: that nothing was withdrawn, with an exit code that a script sees."""

from __future__ import annotations

import pytest

from verticil.shared.core.errors import Misuse
from verticil.shared.study.states import State, require_withdrawn


@pytest.mark.parametrize("state", State)
def test_only_what_was_withdrawn_or_is_under_way_passes(state: State):
    if state in {State.PUBLISHED, State.DENIED, State.EXPIRED, State.FAILED}:
        with pytest.raises(Misuse, match=f"it is over already \\({state.words}\\)") as caught:
            require_withdrawn("hearts", state)
        assert caught.value.code == "STUDY_OVER"
        assert ("party revoke" in caught.value.hint) is (state is State.PUBLISHED)
    else:
        require_withdrawn("hearts", state)
