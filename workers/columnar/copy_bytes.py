"""Copy bytes between arrays inside a kernel, by the machine's ``memcpy``.

The compiler cannot turn a loop over bytes into ``memcpy``, because the arrays might overlap. With
``memcpy`` a text of 32 bytes takes 3 ns instead of 33, a text of 200 bytes 15 ns instead of 59 (as
a slice of an array).
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic


@intrinsic
def copy_bytes(_typing: Any, target: Any, at: Any, source: Any, pos: Any, size: Any) -> Any:
    """``target[at : at + size] = source[pos : pos + size]`` of two arrays of bytes.

    The caller makes sure that the ranges do not overlap and lie inside the arrays: no check here.
    """
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        into, at, out_of, pos, size = args
        into_type, _, out_of_type, _, _ = signature.args
        to = context.make_array(into_type)(context, builder, into).data
        origin = context.make_array(out_of_type)(context, builder, out_of).data
        cgutils.raw_memcpy(builder, builder.gep(to, [at]), builder.gep(origin, [pos]), size, 1)
        return context.get_dummy_value()

    return signature, generate
