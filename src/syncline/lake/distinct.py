"""One row per message: of the copies that several nodes, or one node twice, handed in, the first is kept. Copies are told
by identity; where their bytes differ, the protocol says whether they mean the same, and if not, both stay.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from syncline.lake.stages import KeyedRule

_POSITION: Final = "__position"


def distinct(rows: pa.Table, rule: KeyedRule) -> pa.Table:
    """The rows without further copies, ordered by identity."""
    ordered = rows.sort_by([(name, "ascending") for name in (*rule.table.identity, *rule.table.arrival)])
    names = [*rule.table.identity, rule.content] if rule.same else list(rule.table.identity)
    unlike = _first_of_each(ordered, names)
    if rule.same is None:
        return unlike
    return _without_copies(unlike, rule, {})


def unknown(rows: pa.Table, known: pa.Table, rule: KeyedRule) -> pa.Table:
    """Those of the distinct rows that are no copies of known ones. `known` has their identities, and contents if the rule
    looks at them.
    """
    if known.num_rows == 0:
        return rows
    if rule.same is None:
        keys = list(rule.table.identity)
        # only identities are joined: a join takes no nested columns, and forgets which columns are never null
        numbered = rows.select(keys).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
        new = numbered.join(known, keys=keys, join_type="left anti", use_threads=False)
        return rows if new.num_rows == rows.num_rows else rows.take(new[_POSITION].combine_chunks().sort())
    contents: defaultdict[Any, list[Any]] = defaultdict(list)
    for identity, content in zip(_identities(known, rule), known[rule.content].to_pylist(), strict=True):
        contents[identity].append(content)
    return _without_copies(rows, rule, contents)


def _first_of_each(rows: pa.Table, names: list[str]) -> pa.Table:
    numbered = rows.select(names).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by(names, use_threads=False).aggregate([(_POSITION, "min")])[f"{_POSITION}_min"]
    if len(first) == rows.num_rows:
        return rows
    return rows.take(first.combine_chunks().sort())


def _without_copies(rows: pa.Table, rule: KeyedRule, known: dict[Any, list[Any]]) -> pa.Table:
    assert rule.same is not None
    identities = _identities(rows, rule)
    counted: defaultdict[Any, int] = defaultdict(int)
    for identity in identities:
        counted[identity] += 1
    if not known and len(counted) == rows.num_rows:
        return rows
    contents = rows[rule.content]
    kept: list[int] = []
    seen: dict[Any, list[Any]] = dict(known)
    for position, identity in enumerate(identities):
        if counted[identity] == 1 and identity not in seen:
            kept.append(position)
            continue
        content = contents[position].as_py()
        others = seen.setdefault(identity, [])
        if not any(content == other or rule.same(content, other) for other in others):
            others.append(content)
            kept.append(position)
    return rows.take(pa.array(kept, pa.int64()))


def _identities(rows: pa.Table, rule: KeyedRule) -> list[Any]:
    columns = [rows[name].to_pylist() for name in rule.table.identity]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
