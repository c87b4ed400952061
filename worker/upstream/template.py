"""Placeholders in the texts of a declarative adapter: `{item.id}`, `{target}`, `{token}`. `{{` is a brace."""

import difflib
import re
from collections.abc import Callable, Mapping

from cuscuta.errors import CatalogueRefused, CuscutaError

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_NAME = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)?")


class TemplateError(CuscutaError):
    """A placeholder that does not exist."""


class Template:
    """A text with placeholders, checked when it is made.

    With `item_params`, `{item.anything}` is allowed and looked up among the item's parameters. With `bare_braces`,
    braces that hold no known placeholder stay as they are (JMESPath has braces of its own).
    """

    def __init__(
        self, text: str, names: frozenset[str], *, item_params: bool = False, bare_braces: bool = False
    ) -> None:
        self.parts: list[tuple[str, str | None]] = []  # (literal, placeholder after it)
        cursor, literal = 0, ""
        for match in _PLACE.finditer(text):
            literal += text[cursor : match.start()]
            cursor = match.end()
            name = match.group(1)
            if name is None:
                literal += match.group(0)[0] if not bare_braces else match.group(0)
            elif name in names or (item_params and name.startswith("item.") and _NAME.fullmatch(name)):
                self.parts.append((literal, name))
                literal = ""
            elif bare_braces:
                literal += match.group(0)
            else:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"Did you mean {{{near[0]}}}?" if near else f"Known: {', '.join(sorted(names))}."
                raise TemplateError(f"there is no placeholder {{{name}}}. {hint}")
        self.parts.append((literal + text[cursor:], None))

    @property
    def names(self) -> list[str]:
        """The placeholders in it."""
        return [name for _, name in self.parts if name]

    def fill(self, values: Mapping[str, str], escape: Callable[[str], str] = str) -> str:
        """The text with the values in place, each escaped. Raises CatalogueRefused if an item lacks a parameter."""
        out = []
        for literal, name in self.parts:
            out.append(literal)
            if name is not None:
                value = values.get(name)
                if value is None:
                    raise CatalogueRefused(f"the adapter asks for {{{name}}}, which this item does not have")
                out.append(escape(value))
        return "".join(out)
