"""What records are worth, on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from verticil.cli.output import Format, say
from verticil.shared.numerics.joint.worth import Worth, sentence

if TYPE_CHECKING:
    from verticil.shared.study.document import Study


def print_worth(worth: Worth) -> None:
    """Print what records are good for in one sentence; in red where they are of no use for relations."""
    say(sentence(worth), style="red" if worth.is_useless else "green")


def predicted_worth(study: Study | Path | str, n: int) -> Worth | None:
    """Return what records of a joint model will be worth by the study alone; None: nothing is predicted."""
    from verticil.analyst.prediction import predict_study, worth_of
    from verticil.shared.study.document import Study
    from verticil.shared.study.reading import read_study

    prediction = predict_study(study if isinstance(study, Study) else read_study(Path(study)), n)
    return None if prediction is None else worth_of(prediction)


def fail_if_useless(worth: Worth | None, form: Format) -> None:
    """End with exit code 6 where records are no nearer to the people than independent columns."""
    if worth is None or not worth.is_useless:
        return
    if form is Format.text:
        say(
            f"error USELESS: records are {worth.two_way:.2g} from the people in tables of two columns, independent columns "
            f"{worth.independent:.2g}",
            style="red",
        )
        say("hint: declare fewer columns or categories, or allow a larger epsilon")
    raise typer.Exit(6)
