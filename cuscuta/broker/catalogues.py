"""Catalogues: immutable pages under a content hash, a head with the grid, and names that point at a hash.

Pages in a KV bucket instead of bodies in an object store: a worker loads the page of its chunk in 0.3 ms and no more,
so a million items cost it no memory, and `nats kv get` shows them.
"""

import asyncio
import hashlib
from bisect import bisect_right
from collections import OrderedDict

from cuscuta import limits, subjects
from cuscuta.broker.kv import Bucket
from cuscuta.codec import RecordError, decode, encode
from cuscuta.model import CatalogueHead, CatalogueName, Item
from cuscuta.spans import Grid, Span, make_grid

_HEADS = 16  # heads kept in memory, at most 100 KiB each


class CatalogueMissing(RecordError):
    """A catalogue's head or page is not in the bucket."""


def paginate(items: list[Item]) -> list[int]:
    """Where pages begin, and the end: bounded by items and by bytes."""
    starts, size = [0], 0
    for i, item in enumerate(items):
        cost = len(item.id) * 4 + 40 + sum(len(k) + len(str(v)) * 4 + 8 for k, v in item.params.items())
        full = size + cost > limits.CATALOGUE_PAGE_BYTES or i - starts[-1] >= limits.CATALOGUE_PAGE_ITEMS
        if full and i > starts[-1]:
            starts.append(i)
            size = 0
        size += cost
    return [*starts, len(items)]


def make_head(items: list[Item]) -> CatalogueHead:
    """A catalogue's head; takes about a second for a million items, so call it in a thread."""
    grid = make_grid([item.weight for item in items])
    return CatalogueHead(
        hash=_content_hash(items),
        items=len(items),
        weight=grid.weight,
        pages=tuple(paginate(items)),
        cuts=grid.cuts,
        weights=grid.weights,
    )


class Catalogues:
    """`cuscuta_catalogues`, with the last heads and pages in memory."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._heads: OrderedDict[str, CatalogueHead] = OrderedDict()
        self._pages: OrderedDict[tuple[str, int], list[Item]] = OrderedDict()

    async def put(self, items: list[Item]) -> CatalogueHead:
        """Store a catalogue's content; storing the same again changes nothing. The head comes last, as a seal."""
        head = await asyncio.to_thread(make_head, items)
        if await self._bucket.get(subjects.catalogue_head_key(head.hash)) is None:
            for page, (start, stop) in enumerate(zip(head.pages, head.pages[1:], strict=False)):
                await self._bucket.create(subjects.catalogue_page_key(head.hash, page), encode(items[start:stop]))
            await self._bucket.create(subjects.catalogue_head_key(head.hash), encode(head))
        return head

    async def point(self, name: CatalogueName) -> bool:
        """Let a name mean a content; False if the content is not stored (any more)."""
        await self._bucket.put(subjects.catalogue_name_key(name.name), encode(name))
        return await self._bucket.get(subjects.catalogue_head_key(name.hash)) is not None

    async def resolve(self, name: str) -> CatalogueName | None:
        """What a name means now, from the leader."""
        entry = await self._bucket.get(subjects.catalogue_name_key(name))
        return decode(entry.value, CatalogueName) if entry else None

    async def names(self) -> list[CatalogueName]:
        """All names, in order."""
        keys = [key for kind in ("name.*", "name64.*") for key in await self._bucket.keys(kind)]
        found = []
        for i in range(0, len(keys), limits.BATCH_GET_SUBJECTS):
            found += await self._bucket.many(keys[i : i + limits.BATCH_GET_SUBJECTS])
        return sorted((decode(entry.value, CatalogueName) for entry in found), key=lambda n: n.name)

    async def contents(self) -> set[str]:
        """The hashes of all stored contents."""
        return {key.removeprefix("head.") for key in await self._bucket.keys(subjects.catalogue_head_key("*"))}

    async def remove(self, content: str) -> None:
        """Remove a content: its head first, so that a half-removed one is stored anew when it is put again."""
        await self._bucket.purge(subjects.catalogue_head_key(content))
        await self._bucket.purge(subjects.catalogue_pages(content))
        self._heads.pop(content, None)

    async def head(self, content: str) -> CatalogueHead:
        """A catalogue's head. Raises CatalogueMissing."""
        if head := self._heads.get(content):
            self._heads.move_to_end(content)
            return head
        entry = await self._bucket.get(subjects.catalogue_head_key(content))
        if entry is None:
            raise CatalogueMissing(f"catalogue {content} is not stored")
        head = self._heads[content] = decode(entry.value, CatalogueHead)
        if len(self._heads) > _HEADS:
            self._heads.popitem(last=False)
        return head

    async def grid(self, content: str) -> Grid:
        """A catalogue's grid. Raises CatalogueMissing."""
        head = await self.head(content)
        return Grid(head.cuts, head.weights)

    async def items(self, content: str, span: Span) -> list[Item]:
        """The items of a span. Raises CatalogueMissing."""
        head = await self.head(content)
        found: list[Item] = []
        page = bisect_right(head.pages, span.start) - 1
        while page < len(head.pages) - 1 and head.pages[page] < span.stop:
            first = head.pages[page]
            items = await self._page(content, page)
            found += items[max(0, span.start - first) : span.stop - first]
            page += 1
        if len(found) != span.size:
            raise CatalogueMissing(f"catalogue {content} lacks items of {span}")
        return found

    async def _page(self, content: str, page: int) -> list[Item]:
        key = (content, page)
        if items := self._pages.get(key):
            self._pages.move_to_end(key)
            return items
        entry = await self._bucket.get(subjects.catalogue_page_key(content, page))
        if entry is None:
            raise CatalogueMissing(f"page {page} of catalogue {content} is not stored")
        items = self._pages[key] = decode(entry.value, list[Item])
        if len(self._pages) > limits.CATALOGUE_PAGES_CACHED:
            self._pages.popitem(last=False)
        return items


def _content_hash(items: list[Item]) -> str:
    """The name of a catalogue's content: 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(encode(item))
        digest.update(b"\n")
    return digest.hexdigest()[:32]
