"""Weights survive packing: rows read back from packed groups are what the file format's definition gives."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from tests.native.kernel_tests import ISAS, assert_same_bits
from tests.native.weight_bytes import FORMATS, random_matrix

from cabochon._native import check


@pytest.mark.parametrize("scales", ["usual", "extreme"])
@pytest.mark.parametrize("isa", [*ISAS, "reference"])
@pytest.mark.parametrize("name", FORMATS)
def test_rows_equal_the_gguf_packages(name: str, isa: str, scales: str) -> None:
    fmt, rng = FORMATS[name], np.random.default_rng(23)
    for rows in (1, 16, 35):
        file = random_matrix(rng, fmt, rows, 768, "usual" if scales == "usual" else "extreme")
        want = dequantize(file.reshape(rows, -1), GGMLQuantizationType(fmt.number)).astype(np.float32)
        got = check.dequantize(isa, fmt.number, rows, 768, file, 1.0)
        assert_same_bits(got, want.reshape(rows, 768))
        root = np.float32(np.sqrt(640))
        assert_same_bits(check.dequantize(isa, fmt.number, rows, 768, file, float(root)), got * root)
