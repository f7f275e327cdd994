"""From a view model to HTML: its fields are the variables of a template.

Every text is escaped (autoescape), whoever wrote it: titles of studies, names of people, labels, messages. `isolated` keeps marks
for the direction of writing inside of a text from reordering the words around it (Unicode Standard Annex 9).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import ChoiceLoader, Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from verticil.shared.core.name_lists import shortened
from verticil.shared.pages.words import epsilon_text, greek, pair_text, points_text, sentence, size_text, when_text
from verticil.shared.release import wording
from verticil.shared.study.protocols import PROTOCOLS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def _summary_of(model: str) -> str:
    return PROTOCOLS.named(model).summary


_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "counted": wording.count,
    "epsilon": epsilon_text,
    "points": points_text,
    "greek": greek,
    "left": wording.left,
    "pair": pair_text,
    "protocol": _summary_of,
    "sentence": sentence,
    "shortened": shortened,
    "size": size_text,
    "when": when_text,
}


_LONG: Final = re.compile(r"\w{20,}")


def isolated(text: object) -> Markup:
    """Return a text of others as an element whose writing direction is its own; a long name may end a line behind an underscore.

    >>> str(isolated("a<b_c"))
    '<bdi>a&lt;b_c</bdi>'
    """
    broken = _LONG.sub(lambda name: name[0].replace("_", "_<wbr>"), str(escape(text)))
    return Markup("<bdi>{}</bdi>").format(Markup(broken))  # noqa: S704 (it is escaped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why there is nothing to show, or why nothing was done; `back`: where to go on, relative."""

    heading: str = "Nothing to show"
    said: str
    hint: str = ""
    back: str = ""


class Templates:
    """The templates of one package's pages, over those that all pages share.

    Args:
        package: whose folder ``templates`` holds ``NAME.html.j2``.
        menu: the pages in the head: (name of the template, address below the root, title).
        subtitle: beside the name of the node.
        filters: of these templates besides the common ones; tests by `tests`.
    """

    def __init__(
        self,
        package: str,
        *,
        menu: tuple[tuple[str, str, str], ...],
        subtitle: str,
        filters: Mapping[str, Callable[..., Any]] | None = None,
        tests: Mapping[str, Callable[..., Any]] | None = None,
        values: Mapping[str, object] | None = None,
    ) -> None:
        self._environment = Environment(
            loader=ChoiceLoader([FunctionLoader(_reader(package)), FunctionLoader(_reader("verticil.shared.pages"))]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(dict[str, Any]({**_FILTERS, "isolated": isolated, **(filters or {})}))
        self._environment.tests.update(tests or {})
        self._values = {
            "menu": menu,
            "subtitle": subtitle,
            "node": "",
            "form_token": "",
            "live": True,
            **(values or {}),
        }

    def render(self, template: str, model: DataclassInstance, *, root: str, **values: object) -> str:
        """Render a page as HTML.

        Args:
            template: its name, without ending.
            model: what it shows.
            root: relative address of the first page, as in ``../``.
            values: what stands beside the model; `shown_at`: when the state was read.
        """
        page = self._environment.get_template(f"{template}.html.j2")
        fields_of_model = {field.name: getattr(model, field.name) for field in fields(model)}
        return page.render(self._values | fields_of_model | values, root=root, page=template)

    def answer(
        self, request: Request, template: str, model: DataclassInstance, *, status: int = 200, **values: object
    ) -> HTMLResponse:
        """Render a page as the answer to a request; its forms carry the token of the server."""
        root = "../" * (request.scope["path"].count("/") - 1) or "./"
        html = self.render(template, model, root=root, form_token=request.state.form_token, **values)
        return HTMLResponse(html, status)


def _reader(package: str) -> Callable[[str], str | None]:
    folder = files(package) / "templates"

    def read(name: str) -> str | None:
        file = folder / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    return read
