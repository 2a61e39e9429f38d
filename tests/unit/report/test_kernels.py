"""Names of kernels shortened: what tells them apart stays."""

from __future__ import annotations

import pytest

from perfgate.judging.report.text.kernels import kernel_name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("MatMulV3", "MatMulV3"),
        ("void gemm<int>(float*, (anonymous namespace)::Params)", "gemm<int>"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)",
            "at::native::vectorized_elementwise_kernel<…>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)",
            "at::native::vectorized_elementwise_kernel<…AddFunctor…>",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1", "Cijk…MT128x256x32"),
        (
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_64x3_tn_align8",
            "cutlass…bf16_s16816gemm_256x128_64x3",
        ),
    ],
)
def test_kernel_name__what_profilers_write__keeps_what_tells_it_apart(name: str, short: str) -> None:
    assert kernel_name(name, limit=56) == short


def test_kernel_name__long_name_without_structure__shortened_in_the_middle() -> None:
    assert kernel_name("a" * 40 + "b" * 40, limit=11) == "aaaaa…bbbbb"


@pytest.mark.parametrize("name", ["", "(", ")", "a<b", "<<<>>>", "f(((", "operator<<(int)", "x" * 500])
def test_kernel_name__anything__stays_within_the_limit(name: str) -> None:
    assert len(kernel_name(name, limit=30)) <= 30
