"""PostgreSQL's keywords."""

from catalog.keywords import COL_NAME, RESERVED, TYPE_FUNC_NAME


def test_a_keyword_is_of_one_kind() -> None:
    assert (len(RESERVED), len(TYPE_FUNC_NAME), len(COL_NAME)) == (78, 23, 63)
    assert not RESERVED & TYPE_FUNC_NAME
    assert not RESERVED & COL_NAME
    assert not TYPE_FUNC_NAME & COL_NAME


def test_keywords_are_in_lower_case() -> None:
    assert all(word == word.lower() for word in RESERVED | TYPE_FUNC_NAME | COL_NAME)
