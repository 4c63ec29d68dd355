import pytest

from catalog.errcodes import DuplicateColumn, DuplicateObject, InvalidName
from catalog.pg_subscription import (
    TableOptions,
    check_publications,
    check_slot_name,
    sync_slot_name,
)


@pytest.mark.parametrize(
    ("name", "sqlstate"),
    [("", "42602"), ("x" * 64, "42622"), ("MySub", "42602"), ("a-b", "42602"), ("é", "42602")],
)
def test_bad_slot_name(name: str, sqlstate: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_slot_name(name)
    assert caught.value.code == sqlstate


def test_good_slot_name() -> None:
    check_slot_name("x" * 63)
    check_slot_name("sub_1")


def test_publication_named_twice() -> None:
    check_publications(["a", "A"])
    with pytest.raises(DuplicateObject, match='publication name "a" used more than once'):
        check_publications(["a", "b", "a"])


def test_sync_slot_name() -> None:
    name = sync_slot_name(16406, 16399, "7329764006882527550")
    assert name == "pg_16406_sync_16399_7329764006882527550"
    check_slot_name(name)


def test_lake_columns() -> None:
    options = TableOptions(columns=(("ID", "id_2"), ("a", "b"), ("b", "a")))
    assert options.lake_columns(["id", "b", "ID", "a"], "public.t") == {
        "id": "id",
        "b": "a",
        "ID": "id_2",
        "a": "b",
    }
    with pytest.raises(DuplicateColumn, match='columns "ID", "id_2" are mapped') as caught:
        options.lake_columns(["id", "ID", "id_2"], "public.t")
    assert "columns: {" in (caught.value.hint or "")
