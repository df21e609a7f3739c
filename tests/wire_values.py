"""Hypothesis strategies for the wire's types, derived from the types themselves, so that no message is missed."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

SIMPLE: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.AnyType: st.none() | st.text(max_size=5) | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
    inspect.NoneType: st.none(),
    inspect.BoolType: st.booleans(),
    inspect.StrType: st.text(max_size=20),
}


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one for each kind of type
    """Return a strategy for a msgspec type, derived from the type, so that no message type is missed."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            required = {f.name: values(f.type) for f in fields if f.required}
            optional = {f.name: values(f.type) for f in fields if not f.required}
            return st.fixed_dictionaries(required, optional=optional).map(lambda given_: cls(**given_))
        case inspect.UnionType(types=types):
            return st.one_of([values(t) for t in types])
        case inspect.LiteralType(values=literals):
            return st.sampled_from(literals)
        case inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case inspect.DictType(value_type=value):
            return st.dictionaries(st.text(max_size=5), values(value), max_size=3)
    return numbers(kind) if isinstance(kind, inspect.IntType | inspect.FloatType) else SIMPLE[type(kind)]


def numbers(kind: inspect.IntType | inspect.FloatType) -> st.SearchStrategy[float]:
    if isinstance(kind, inspect.FloatType):
        return st.floats(kind.ge, kind.le, allow_nan=False, allow_infinity=False)
    return st.integers(-(2**63) if kind.ge is None else kind.ge, 2**63 - 1 if kind.le is None else kind.le)


def messages(types: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.one_of([values(inspect.type_info(cls)) for cls in types.values()])
