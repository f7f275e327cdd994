"""The options with which commands reach the miner."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FederationOption = Annotated[
    Path, typer.Option("--federation", envvar="VERTICIL_FEDERATION", help="federation.toml of the federation.")
]
CertificateOption = Annotated[
    Path,
    typer.Option(
        "--certificate", envvar="VERTICIL_CERTIFICATE", help="Your certificate; its key lies beside it, named .key."
    ),
]
StudyName = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="Id of the study; ANALYST/ID where several analysts use it; or its digest."),
]
