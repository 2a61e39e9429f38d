"""Names of kernels shortened: what tells them apart stays."""

from __future__ import annotations

import pytest

from perfgate.judging.report.text.kernels import kernel_name, with_short_kernel


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("MatMulV3", "MatMulV3"),
        ("void gemm<int>(float*, (anonymous namespace)::Params)", "gemm<int>"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)",
            "at::native::vectorized_elementwise_kernel<…CUDAFunctor_add…>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >(int)",
            "at::native::vectorized_elementwise_kernel<…AddFunctor…>",
        ),
        (
            "void cutlass::Kernel2<float, float, cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(Params)",
            "cutlass::Kernel2<…cutlass_80_simt_sgemm_64x64_8x5_tn_align1…>",
        ),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1", "Cijk…MT128x256x32"),
        (
            "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_64x3_tn_align8",
            "cutlass…bf16_s16816gemm_256x128_64x3",
        ),
    ],
)
def test_kernel_name__what_profilers_write__keeps_what_tells_it_apart(name: str, short: str) -> None:
    assert kernel_name(name, limit=64) == short


def test_kernel_name__long_name_without_structure__shortened_in_the_middle() -> None:
    assert kernel_name("a" * 40 + "b" * 40, limit=11) == "aaaaa…bbbbb"


@pytest.mark.parametrize("name", ["", "(", ")", "a<b", "<<<>>>", "f(((", "operator<<(int)", "x" * 500])
def test_kernel_name__anything__stays_within_the_limit(name: str) -> None:
    assert len(kernel_name(name, limit=30)) <= 30


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("std::enable_if<true, void>::type internal::gemvx::kernel<int, float, cublasGemvParams<int>>(cublasGemvParams<int>)",
         "std::enable_if<true, void>::type internal::gemvx::kernel<…>"),
        ("tests/unit/report/a_folder_of_a_long_name/another_folder_of_a_long_name/file.py:12", None),
        ("at::native::sum<int>", None),
        ("tests/benchmarks/test_attention.py::TestEncoder::test_forward_with_cache[<lambda>-bfloat16]", None),
    ],
)  # fmt: skip
def test_with_short_kernel__only_long_names_with_templates(text: str, shown: str | None) -> None:
    assert with_short_kernel(text) == (text if shown is None else shown)
