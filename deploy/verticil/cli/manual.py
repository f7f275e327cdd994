"""``verticil man``: a manual page of each command, from what the command says of itself.

`deploy/site/reference.py` writes the page of commands from the same words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from verticil.cli.output import Format, FormatOption, emit, say

_EXIT_CODES: Final = {
    "0": "The command did what it says.",
    "1": "The data, the disk or this machine is at fault, or the program.",
    "2": "The command line, a TOML file or a study is wrong.",
    "3": "The policy or the budget of a site says no.",
    "4": "An approval is missing.",
    "5": "The network, another node or an identity is at fault.",
    "6": "A verification or a gate failed.",
}
_MARKUP: Final = re.compile(r"\[/?(?:bold|dim|code)\]|\\(?=\[)")


def man_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder, such as .venv/share/man/man1.")],
    form: FormatOption = Format.text,
) -> None:
    """Write the manual pages of all commands into a folder, for `man verticil`; older ones there are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = manual_pages()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    if not emit({"folder": str(folder), "pages": list(pages)}, form=form):
        say(f"{folder}: {len(pages)} manual pages; man {folder / 'verticil.1'} shows the first one")


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Iterate over the commands that run something, by their words."""
    if command is None:
        from verticil.cli.main import app

        command = typer.main.get_command(app)
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield path, command


def plain_paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text without markup, each on one line."""
    return [" ".join(part.split()) for part in _MARKUP.sub("", inspect.cleandoc(text)).split("\n\n")]


def parameters(command: Any) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Iterate over what a command takes, besides what all take: (names of an option or none, its value's name, words).

    A switch has no value. The words end with the default, or say that the option is required.
    """
    for item in command.params:
        if item.name in {"form", "help"} or getattr(item, "hidden", False):
            continue
        words = " ".join(plain_paragraphs(getattr(item, "help", "") or ""))
        value = "" if getattr(item, "is_flag", False) else (item.metavar or item.name.upper())
        if not item.opts[0].startswith("-"):
            yield (), value, words
            continue
        if item.required:
            words = f"{words} Required."
        elif item.default not in (None, False, "", (), []) and item.default is not True and not callable(item.default):
            words = f"{words} Default: `{getattr(item.default, 'value', item.default)}`."
        yield (*item.opts, *item.secondary_opts), value, words


def manual_pages() -> dict[str, str]:
    """Return all manual pages by the names of their files: ``verticil.1``, and one for each command."""
    every = list(commands())
    pages = {"verticil.1": _first_page(every)}
    for path, command in every:
        name = "-".join(("verticil", *path))
        first, *rest = plain_paragraphs(command.help)
        lines = [*_head(name, first), ".SH SYNOPSIS", f".B {_roff(' '.join(('verticil', *path)))}"]
        options = [item for item in parameters(command) if item[0]]
        arguments = [item for item in parameters(command) if not item[0]]
        lines += [
            _roff(" ".join(["[OPTION]...", *(value for _, value, _ in arguments)])),
            ".SH DESCRIPTION",
            _roff(first),
        ]
        for paragraph in rest:
            lines += [".PP", _roff(paragraph)]
        if arguments:
            lines.append(".SH ARGUMENTS")
            lines += [line for _, value, words in arguments for line in _item(value, words)]
        lines.append(".SH OPTIONS")
        lines += [
            line for names, value, words in options for line in _item(f"{', '.join(names)} {value}".rstrip(), words)
        ]
        lines += [
            *_item("--format FORM", "What is printed: `text`, or `json` for programs."),
            *_item("--help", "Show this help."),
        ]
        lines += [".SH EXAMPLE", _roff(command.epilog.removeprefix("Example: ")), *_foot()]
        pages[f"{name}.1"] = "\n".join(lines) + "\n"
    return pages


def _first_page(every: list[tuple[tuple[str, ...], Any]]) -> str:
    from verticil.cli.main import root

    first, *rest = plain_paragraphs(root.__doc__ or "")
    lines = [*_head("verticil", first), ".SH SYNOPSIS", ".B verticil", "COMMAND [OPTION]... [ARGUMENT]..."]
    lines += [".SH DESCRIPTION", _roff(" ".join((first, *rest))), ".SH COMMANDS"]
    for path, command in every:
        lines += _item(" ".join(path), plain_paragraphs(command.help)[0])
    lines += [".SH OPTIONS", *_item("--version", "Print the version and exit.")]
    lines += _item("--install-completion", "Complete the commands in your shell from now on.")
    lines += [".SH EXIT STATUS", *(line for code, words in _EXIT_CODES.items() for line in _item(code, words))]
    return "\n".join([*lines, *_foot()]) + "\n"


def _head(name: str, words: str) -> list[str]:
    number = version("verticil")
    title = f'.TH {name.upper()} 1 "" "verticil {number}" "Verticil"'
    return [title, ".SH NAME", f"{_roff(name)} \\- {_roff(words.split('. ', maxsplit=1)[0].rstrip('.'))}"]


def _foot() -> list[str]:
    return [
        ".SH SEE ALSO",
        _roff("`verticil docs` opens the documentation; its page of errors has every code and the next safe step."),
    ]


def _item(name: str, words: str) -> list[str]:
    return [".TP", f".B {_roff(name)}", _roff(words)]


def _roff(text: str) -> str:
    """Return a line of text for roff: no letter of it is a request, what stands in backquotes is bold."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    bold = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)
    return f"\\&{bold}" if bold.startswith((".", "'")) else bold
