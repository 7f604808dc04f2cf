from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from cabochon.ops.protocol import Rope
from cabochon.ops.rope import inverse_frequencies


def test_inverse_frequencies_follow_the_formula() -> None:
    got = inverse_frequencies(Rope(1e6, 8.0), 256)
    assert got.dtype == np.float32
    assert got.shape == (128,)
    np.testing.assert_allclose(got, 1e6 ** (-2 * np.arange(128) / 256) / 8, rtol=2.0**-24)


def test_each_is_the_nearest_binary32() -> None:
    # theta = 10^4 over 8 channels: 1, 1/10, 1/100, 1/1000, known exactly.
    for power, value in enumerate(inverse_frequencies(Rope(1e4), 8)):
        exact = Fraction(1, 10**power)
        error = abs(Fraction(float(value)) - exact)
        for neighbour in (np.nextafter(value, np.float32(0)), np.nextafter(value, np.float32(2))):
            assert error < abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize(("theta", "factor", "head_dim"), [(1e4, 1.0, 256), (1e6, 8.0, 256), (12345.678, 3.7, 510)])
def test_each_power_by_itself_is_the_same(theta: float, factor: float, head_dim: int) -> None:
    with localcontext() as context:
        context.prec = 60
        exact = [Decimal(theta) ** (Decimal(-2 * i) / head_dim) / Decimal(factor) for i in range(head_dim // 2)]
        for value, wanted in zip(inverse_frequencies(Rope(theta, factor), head_dim), exact, strict=True):
            error = abs(Decimal(float(value)) - wanted)
            for neighbour in (np.nextafter(value, np.float32(0)), np.nextafter(value, np.float32(np.inf))):
                assert error < abs(Decimal(float(neighbour)) - wanted)
