"""A mistake keeps its SQLSTATE inside pydantic."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from catalog.errcodes import InvalidParameterValue
from config.problem import problem, unwrap


class Model(BaseModel):
    """A number that has to be positive."""

    number: int

    @field_validator("number")
    @classmethod
    def positive(cls, value: int) -> int:
        """22023 for any other number."""
        if value <= 0:
            raise problem(InvalidParameterValue("not positive"), "deeper", "key")
        return value


def test_the_error_and_the_key_come_back() -> None:
    with pytest.raises(ValidationError, match="not positive") as caught:
        Model(number=0)
    (details,) = caught.value.errors()
    error, key = unwrap(details)
    assert error is not None
    assert (error.code, error.primary, key) == ("22023", "not positive", ("deeper", "key"))


def test_an_error_of_pydantic_carries_none() -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"number": "x"})
    (details,) = caught.value.errors()
    assert unwrap(details) == (None, ())
