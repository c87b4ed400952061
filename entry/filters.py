"""Which jobs a list or a cancellation is about."""

from collections.abc import Callable, Sequence
from typing import Annotated

from litestar.params import QueryParameter

from cuscuta.broker.projection import Summary
from cuscuta.errors import InputError
from cuscuta.model import JobStatus

Statuses = Annotated[list[JobStatus] | None, QueryParameter(description="only these", required=False)]
Target = Annotated[str | None, QueryParameter(description="only this target", required=False)]
Catalogue = Annotated[str | None, QueryParameter(description="only this catalogue", required=False)]
Labels = Annotated[list[str] | None, QueryParameter(description="only with this label, as key:value", required=False)]


def matching(
    status: Sequence[JobStatus] | None, target: str | None, catalogue: str | None, label: Sequence[str] | None
) -> Callable[[Summary], bool]:
    """Whether a job is meant. Raises InputError for a label without a colon."""
    labels, wanted = [_label(text) for text in label or []], set(status or JobStatus)

    def keep(row: Summary) -> bool:
        return (
            row.status in wanted
            and (target is None or row.target == target)
            and (catalogue is None or row.catalogue == catalogue)
            and all(row.labels.get(key) == value for key, value in labels)
        )

    return keep


def _label(text: str) -> tuple[str, str]:
    key, colon, value = text.partition(":")
    if not colon:
        raise InputError("label", f"{text[:60]!r} has no colon", "Write label=key:value.")
    return key, value
