"""Which kernels communicate, by names as libraries and recordings spell them."""

from __future__ import annotations

import re
from contextvars import copy_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.errors import UsageError
from perfgate.trace.model import communication
from perfgate.trace.model.communication import add_communication, kernel_kind
from tests.each import each

COMMUNICATING = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "rcclKernel_AllGather",
    "hcom_allReduce__586_0_1",
    "HcclAllReduce",
    "ccl::reduce_scatter_kernel",
    "void deep_ep::internode::dispatch<false, 8, 4>(int4*, float*)",
    "void dpsk::ep::internode::combine<1, 8>(int4*)",
    "void dpsk::ep::internode::cached_notify<true>(int)",
    "void dpsk::ep::internode::notify_dispatch<false, 8>(int const*)",
    "nvshmemi_barrier_on_stream_kernel",
    "multimem_all_reduce_kernel",
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
    "void sglang::cross_device_reduce_1stage<half, 2>(sglang::RankData*)",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
    "void quickreduce::allreduce_prototype_twoshot<>()",
    "two_shot_all_reduce_kernel",
    "MoeDistributeDispatchV2",
    "aclnnMoeDistributeCombineV2_MoeDistributeCombineV2_MoeDistributeCombineV2",
)
COMPUTING = (
    "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x256x32",
    "GroupedMatmul",
    "MatMulV3",
    "aclnnAddmm_MatMulCommon_MatMulV2",
    "vllm::topk_softmax",
    "void moe::dev::routing::routingIndicesKernel",
    "MoeInitRoutingV2",
    "accelerate_kernel",
    "cclamp_kernel",
)

FUSED = (
    "aclnnMatmulAllReduce_MatmulAllReduce_MatmulAllReduce",
    "MatmulAllReduceAddRmsNorm",
    "AllGatherMatmul",
    "MatmulReduceScatterV2",
    "BatchMatMulReduceScatterAlltoAll",
    "AlltoAllvGroupedMatMul",
    "AlltoAllAllGatherBatchMatMul",
    "DispatchFFNCombine",
    "aclnnDispatchGmmCombineDecode",
    "void tensorrt_llm::kernels::cutlass_kernels::GemmAllReduceImplTwoshot_Sm90<true>(int)",
    "flux::gemm_rs<half>",
)


@each("name", COMMUNICATING)
def test_kernel_kind__kernels_of_communication_libraries__do(name: str) -> None:
    assert kernel_kind(name) == "comm"


@each("name", COMPUTING)
def test_kernel_kind__kernels_that_compute__do_not(name: str) -> None:
    assert kernel_kind(name) == "compute"


@each("name", FUSED)
def test_kernel_kind__kernels_that_multiply_and_exchange_at_once__are_a_kind_of_their_own(name: str) -> None:
    assert kernel_kind(name) == "fused"


def test_kernel_kind__a_pattern_of_the_team__comes_first() -> None:
    def added() -> str:
        add_communication(["^MatmulAllReduce"])
        return kernel_kind("MatmulAllReduce")

    assert copy_context().run(added) == "comm"


def test_add_communication__a_teams_own_kernel__counts_too() -> None:
    def added() -> str:
        add_communication(["our_ring"])
        return kernel_kind("our_ring_exchange<4>")

    assert kernel_kind("our_ring_exchange<4>") == "compute"
    assert copy_context().run(added) == "comm"


def test_add_communication__no_regular_expression__is_refused() -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        add_communication(["("])


@pytest.mark.parametrize("pattern", [*communication._FUSED, *communication._LIBRARIES])
def test_kernel_kind__any_name_that_a_pattern_matches__has_one_of_the_parts_that_are_looked_for(pattern: str) -> None:
    """Names without a part are not compared with the patterns."""

    @settings(max_examples=30, deadline=None)
    @given(st.from_regex(re.compile(pattern, re.IGNORECASE | re.ASCII)))
    def check(name: str) -> None:
        assert any(part in name.lower() for part in communication._PARTS)

    check()
