// Operators that work element by element, fill, copy or draw random numbers.
#include "operators.h"

using namespace soft;

#define UNARY(NAME, FUNCTION)                                                                \
  OPERATOR(aclnn##NAME, (Tensor a, Tensor out), (a, out), store(out, at::FUNCTION(view(a)))) \
  OPERATOR(aclnnInplace##NAME, (Tensor a), (a), store(a, at::FUNCTION(view(a))))
UNARY(Relu, relu)
UNARY(Sigmoid, sigmoid)
UNARY(Tanh, tanh)
UNARY(Exp, exp)
UNARY(Log, log)
UNARY(Sqrt, sqrt)
UNARY(Rsqrt, rsqrt)
UNARY(Abs, abs)
UNARY(Neg, neg)
UNARY(Reciprocal, reciprocal)
UNARY(Sin, sin)
UNARY(Cos, cos)
UNARY(Ceil, ceil)
UNARY(Floor, floor)
UNARY(Round, round)
UNARY(Trunc, trunc)
UNARY(Erf, erf)
UNARY(Silu, silu)
UNARY(LogicalNot, logical_not)
UNARY(BitwiseNot, bitwise_not)
UNARY(Sign, sign)
OPERATOR(aclnnIsFinite, (Tensor a, Tensor out), (a, out), store(out, at::isfinite(view(a))))
OPERATOR(aclnnGelu, (Tensor a, Tensor out), (a, out), store(out, at::gelu(view(a))))
OPERATOR(aclnnGeluV2, (Tensor a, int64_t k, Tensor out), (a, out), store(out, at::gelu(view(a), k ? "tanh" : "none")))
OPERATOR(aclnnGeluBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::gelu_backward(view(g), view(a))))
OPERATOR(aclnnSiluBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::silu_backward(view(g), view(a))))
OPERATOR(aclnnSigmoidBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::sigmoid_backward(view(g), view(a))))
OPERATOR(aclnnTanhBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::tanh_backward(view(g), view(a))))
OPERATOR(aclnnThresholdBackward, (Tensor g, Tensor a, Scalar th, Tensor out), (g, a, out),
         store(out, at::threshold_backward(view(g), view(a), value(th))))

OPERATOR(aclnnAdd, (Tensor a, Tensor b, Scalar k, Tensor out), (a, b, out),
         store(out, at::add(view(a), view(b), value(k))))
OPERATOR(aclnnAdds, (Tensor a, Scalar b, Scalar k, Tensor out), (a, out),
         store(out, at::add(view(a), value(b), value(k))))
OPERATOR(aclnnInplaceAdd, (Tensor a, Tensor b, Scalar k), (b, a), store(a, at::add(view(a), view(b), value(k))))
OPERATOR(aclnnInplaceAdds, (Tensor a, Scalar b, Scalar k), (a), store(a, at::add(view(a), value(b), value(k))))
OPERATOR(aclnnSub, (Tensor a, Tensor b, Scalar k, Tensor out), (a, b, out),
         store(out, at::sub(view(a), view(b), value(k))))
OPERATOR(aclnnSubs, (Tensor a, Scalar b, Scalar k, Tensor out), (a, out),
         store(out, at::sub(view(a), value(b), value(k))))
OPERATOR(aclnnInplaceSub, (Tensor a, Tensor b, Scalar k), (b, a), store(a, at::sub(view(a), view(b), value(k))))
OPERATOR(aclnnInplaceSubs, (Tensor a, Scalar b, Scalar k), (a), store(a, at::sub(view(a), value(b), value(k))))
OPERATOR(aclnnRsubs, (Tensor a, Scalar b, Scalar k, Tensor out), (a, out),
         store(out, at::rsub(view(a), value(b), value(k))))
#define BINARY(NAME, FUNCTION)                                                                                      \
  OPERATOR(aclnn##NAME, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::FUNCTION(view(a), view(b))))  \
  OPERATOR(aclnn##NAME##s, (Tensor a, Scalar b, Tensor out), (a, out), store(out, at::FUNCTION(view(a), value(b)))) \
  OPERATOR(aclnnInplace##NAME, (Tensor a, Tensor b), (b, a), store(a, at::FUNCTION(view(a), view(b))))              \
  OPERATOR(aclnnInplace##NAME##s, (Tensor a, Scalar b), (a), store(a, at::FUNCTION(view(a), value(b))))
BINARY(Mul, mul)
BINARY(Div, div)
BINARY(FloorDivide, floor_divide)
#define COMPARISON(NAME, FUNCTION)                                             \
  OPERATOR(aclnn##NAME##Tensor, (Tensor a, Tensor b, Tensor out), (a, b, out), \
           store(out, at::FUNCTION(view(a), view(b))))                         \
  OPERATOR(aclnn##NAME##Scalar, (Tensor a, Scalar b, Tensor out), (a, out), store(out, at::FUNCTION(view(a), value(b))))
COMPARISON(Eq, eq)
COMPARISON(Ne, ne)
COMPARISON(Gt, gt)
COMPARISON(Ge, ge)
COMPARISON(Lt, lt)
COMPARISON(Le, le)
OPERATOR(aclnnLogicalAnd, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::logical_and(view(a), view(b))))
OPERATOR(aclnnBitwiseAndScalar, (Tensor a, Scalar b, Tensor out), (a, out),
         store(out, at::bitwise_and(view(a), value(b))))
OPERATOR(aclnnBitwiseAndTensor, (Tensor a, Tensor b, Tensor out), (a, b, out),
         store(out, at::bitwise_and(view(a), view(b))))
OPERATOR(aclnnMaximum, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::maximum(view(a), view(b))))
OPERATOR(aclnnMinimum, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::minimum(view(a), view(b))))
OPERATOR(aclnnPowTensorScalar, (Tensor a, Scalar e, Tensor out), (a, out), store(out, at::pow(view(a), value(e))))
OPERATOR(aclnnClampMin, (Tensor a, Scalar e, Tensor out), (a, out), store(out, at::clamp_min(view(a), value(e))))
OPERATOR(aclnnAddcmul, (Tensor a, Tensor b, Tensor c, Scalar k, Tensor out), (a, b, c, out),
         store(out, at::addcmul(view(a), view(b), view(c), value(k))))
OPERATOR(aclnnInplaceAddcmul, (Tensor a, Tensor b, Tensor c, Scalar k), (b, c, a),
         store(a, at::addcmul(view(a), view(b), view(c), value(k))))
OPERATOR(aclnnAddcdiv, (Tensor a, Tensor b, Tensor c, Scalar k, Tensor out), (a, b, c, out),
         store(out, at::addcdiv(view(a), view(b), view(c), value(k))))
OPERATOR(aclnnInplaceAddcdiv, (Tensor a, Tensor b, Tensor c, Scalar k), (b, c, a),
         store(a, at::addcdiv(view(a), view(b), view(c), value(k))))
OPERATOR(aclnnLerps, (Tensor a, Tensor b, Scalar k, Tensor out), (a, b, out),
         store(out, at::lerp(view(a), view(b), value(k))))
OPERATOR(aclnnInplaceLerps, (Tensor a, Tensor b, Scalar k), (b, a), store(a, at::lerp(view(a), view(b), value(k))))
OPERATOR(aclnnSWhere, (Tensor c, Tensor a, Tensor b, Tensor out), (c, a, b, out),
         store(out, at::where(view(c), view(a), view(b))))
OPERATOR(aclnnInplaceMaskedFillScalar, (Tensor a, Tensor m, Scalar v), (m, a), view(a).masked_fill_(view(m), value(v)))

OPERATOR(aclnnCast, (Tensor a, aclDataType, Tensor out), (a, out), store(out, view(a)))
OPERATOR(aclnnInplaceCopy, (Tensor a, Tensor b), (b, a), store(a, view(b)))
OPERATOR(aclnnInplaceFillScalar, (Tensor a, Scalar v), (a), view(a).fill_(value(v)))
OPERATOR(aclnnInplaceFillTensor, (Tensor a, Tensor v), (v, a), view(a).fill_(view(v)))
OPERATOR(aclnnInplaceZero, (Tensor a), (a), view(a).zero_())
OPERATOR(aclnnInplaceOne, (Tensor a), (a), view(a).fill_(1))
OPERATOR(aclnnArange, (Scalar a, Scalar b, Scalar c, Tensor out), (out),
         store(out, at::arange(value(a), value(b), value(c))))
static at::Generator gen(int64_t seed, int64_t off) {
  auto g = at::detail::createCPUGenerator((uint64_t)seed * 1000003u + (uint64_t)off);
  return g;
}
OPERATOR(aclnnInplaceNormal, (Tensor a, float m, float sd, int64_t seed, int64_t off), (a),
         store(a, at::empty(view(a).sizes(), at::kFloat).normal_(m, sd, gen(seed, off))))
OPERATOR(aclnnInplaceUniform, (Tensor a, double lo, double hi, uint64_t seed, uint64_t off), (a),
         store(a, at::empty(view(a).sizes(), at::kFloat).uniform_(lo, hi, gen(seed, off))))
OPERATOR(aclnnInplaceRandom, (Tensor a, int64_t lo, int64_t hi, int64_t seed, int64_t off), (a),
         store(a, at::empty(view(a).sizes(), at::kLong).random_(lo, hi, gen(seed, off))))
// ---- more of the same kind
UNARY(Expm1, expm1)
UNARY(Log1p, log1p)
UNARY(Log2, log2)
UNARY(Log10, log10)
UNARY(Exp2, exp2)
UNARY(Tan, tan)
UNARY(Asin, asin)
UNARY(Acos, acos)
UNARY(Atan, atan)
UNARY(Sinh, sinh)
UNARY(Cosh, cosh)
UNARY(Asinh, asinh)
UNARY(Acosh, acosh)
UNARY(Atanh, atanh)
UNARY(Erfc, erfc)
UNARY(Erfinv, erfinv)
UNARY(Hardswish, hardswish)
UNARY(Hardsigmoid, hardsigmoid)
UNARY(Mish, mish)
UNARY(Selu, selu)
UNARY(Frac, frac)
OPERATOR(aclnnFmodTensor, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::fmod(view(a), view(b))))
OPERATOR(aclnnFmodScalar, (Tensor a, Scalar b, Tensor out), (a, out), store(out, at::fmod(view(a), value(b))))
OPERATOR(aclnnInplaceFmodTensor, (Tensor a, Tensor b), (b, a), store(a, at::fmod(view(a), view(b))))
OPERATOR(aclnnInplaceFmodScalar, (Tensor a, Scalar b), (a), store(a, at::fmod(view(a), value(b))))
OPERATOR(aclnnCelu, (Tensor a, Scalar alpha, Tensor out), (a, out), store(out, at::celu(view(a), value(alpha))))
OPERATOR(aclnnInplaceCelu, (Tensor a, Scalar alpha), (a), store(a, at::celu(view(a), value(alpha))))
OPERATOR(aclnnIsInf, (Tensor a, Tensor out), (a, out), store(out, at::isinf(view(a))))
OPERATOR(aclnnSignbit, (Tensor a, Tensor out), (a, out), store(out, at::signbit(view(a))))
OPERATOR(aclnnLogSigmoid, (Tensor a, Tensor out), (a, out), store(out, at::log_sigmoid(view(a))))
OPERATOR(aclnnLogSigmoidForward, (Tensor a, Tensor out, Tensor), (a, out), store(out, at::log_sigmoid(view(a))))
OPERATOR(aclnnLogSigmoidBackward, (Tensor g, Tensor a, Tensor, Tensor out), (g, a, out),
         store(out, at::log_sigmoid_backward(view(g), view(a), at::exp(-at::abs(view(a))))))
OPERATOR(aclnnNanToNum, (Tensor a, float nan, float high, float low, Tensor out), (a, out),
         store(out, at::nan_to_num(view(a), nan, high, low)))

OPERATOR(aclnnHardswishBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::hardswish_backward(view(g), view(a))))
OPERATOR(aclnnHardswishBackwardV2, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::hardswish_backward(view(g), view(a))))
OPERATOR(aclnnHardsigmoidBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::hardsigmoid_backward(view(g), view(a))))
OPERATOR(aclnnMishBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::mish_backward(view(g), view(a))))
OPERATOR(aclnnHardtanh, (Tensor a, Scalar low, Scalar high, Tensor out), (a, out),
         store(out, at::hardtanh(view(a), value(low), value(high))))
OPERATOR(aclnnInplaceHardtanh, (Tensor a, Scalar low, Scalar high), (a),
         store(a, at::hardtanh(view(a), value(low), value(high))))
OPERATOR(aclnnHardtanhBackward, (Tensor g, Tensor a, Scalar low, Scalar high, Tensor out), (g, a, out),
         store(out, at::hardtanh_backward(view(g), view(a), value(low), value(high))))
OPERATOR(aclnnLeakyRelu, (Tensor a, Scalar slope, Tensor out), (a, out),
         store(out, at::leaky_relu(view(a), value(slope))))
OPERATOR(aclnnInplaceLeakyRelu, (Tensor a, Scalar slope), (a), store(a, at::leaky_relu(view(a), value(slope))))
OPERATOR(aclnnLeakyReluBackward, (Tensor g, Tensor a, Scalar slope, bool is_result, Tensor out), (g, a, out),
         store(out, at::leaky_relu_backward(view(g), view(a), value(slope), is_result)))
OPERATOR(aclnnElu, (Tensor a, Scalar alpha, Scalar scale, Scalar input_scale, Tensor out), (a, out),
         store(out, at::elu(view(a), value(alpha), value(scale), value(input_scale))))
OPERATOR(aclnnInplaceElu, (Tensor a, Scalar alpha, Scalar scale, Scalar input_scale), (a),
         store(a, at::elu(view(a), value(alpha), value(scale), value(input_scale))))
OPERATOR(aclnnEluBackward,
         (Tensor g, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor a, Tensor out), (g, a, out),
         store(out, at::elu_backward(view(g), value(alpha), value(scale), value(input_scale), is_result, view(a))))
OPERATOR(aclnnSoftplus, (Tensor a, Scalar beta, Scalar threshold, Tensor out), (a, out),
         store(out, at::softplus(view(a), value(beta), value(threshold))))
OPERATOR(aclnnSoftplusBackward, (Tensor g, Tensor a, Scalar beta, Scalar threshold, Tensor out), (g, a, out),
         store(out, at::softplus_backward(view(g), view(a), value(beta), value(threshold))))
OPERATOR(aclnnPrelu, (Tensor a, Tensor w, Tensor out), (a, w, out), store(out, at::prelu(view(a), view(w).flatten())))
OPERATOR(aclnnPreluBackward, (Tensor g, Tensor a, Tensor w, Tensor ga, Tensor gw), (g, a, w, ga), {
  // The kernel wants the weight in the shape of the input's channels.
  auto input = view(a);
  std::vector<int64_t> channels(input.dim(), 1);
  if (input.dim() > 1) channels[1] = view(w).numel();
  auto [x, y] = at::_prelu_kernel_backward(view(g), input, view(w).reshape(channels));
  store(ga, x);
  store(gw, y.sum_to_size(channels));
})
OPERATOR_KEEPING(aclnnGeluBackwardV2, (Tensor g, Tensor a, const char* name, Tensor out), (g, a, out),
                 (approximate = std::string(name)), store(out, at::gelu_backward(view(g), view(a), approximate)))
OPERATOR(aclnnGlu, (Tensor a, int64_t d, Tensor out), (a, out), store(out, at::glu(view(a), d)))
OPERATOR(aclnnGluBackward, (Tensor g, Tensor a, int64_t d, Tensor out), (g, a, out),
         store(out, at::glu_backward(view(g), view(a), d)))

OPERATOR(aclnnClamp, (Tensor a, Scalar low, Scalar high, Tensor out), (a, out),
         store(out, at::clamp(view(a), low ? std::optional<at::Scalar>(value(low)) : std::nullopt,
                              high ? std::optional<at::Scalar>(value(high)) : std::nullopt)))
OPERATOR(aclnnClampTensor, (Tensor a, Tensor low, Tensor high, Tensor out), (a, low, high, out),
         store(out, at::clamp(view(a), maybe(low), maybe(high))))
OPERATOR(aclnnClampMax, (Tensor a, Scalar high, Tensor out), (a, out), store(out, at::clamp_max(view(a), value(high))))
OPERATOR(aclnnClampMinTensor, (Tensor a, Tensor low, Tensor out), (a, low, out),
         store(out, at::clamp_min(view(a), view(low))))
OPERATOR(aclnnClampMaxTensor, (Tensor a, Tensor high, Tensor out), (a, high, out),
         store(out, at::clamp_max(view(a), view(high))))
OPERATOR(aclnnInplaceClampMax, (Tensor a, Scalar high), (a), store(a, at::clamp_max(view(a), value(high))))
OPERATOR(aclnnInplaceClampMinTensor, (Tensor a, Tensor low), (low, a), store(a, at::clamp_min(view(a), view(low))))
OPERATOR(aclnnInplaceClampMaxTensor, (Tensor a, Tensor high), (high, a), store(a, at::clamp_max(view(a), view(high))))
OPERATOR(aclnnPowTensorTensor, (Tensor a, Tensor e, Tensor out), (a, e, out), store(out, at::pow(view(a), view(e))))
OPERATOR(aclnnPowScalarTensor, (Scalar a, Tensor e, Tensor out), (e, out), store(out, at::pow(value(a), view(e))))
OPERATOR(aclnnInplacePowTensorScalar, (Tensor a, Scalar e), (a), store(a, at::pow(view(a), value(e))))
OPERATOR(aclnnInplacePowTensorTensor, (Tensor a, Tensor e), (e, a), store(a, at::pow(view(a), view(e))))
OPERATOR(aclnnRemainderTensorScalar, (Tensor a, Scalar b, Tensor out), (a, out),
         store(out, at::remainder(view(a), value(b))))
OPERATOR(aclnnRemainderTensorTensor, (Tensor a, Tensor b, Tensor out), (a, b, out),
         store(out, at::remainder(view(a), view(b))))
OPERATOR(aclnnRemainderScalarTensor, (Scalar a, Tensor b, Tensor out), (b, out),
         store(out, at::remainder(value(a), view(b))))
OPERATOR(aclnnInplaceRemainderTensorScalar, (Tensor a, Scalar b), (a), store(a, at::remainder(view(a), value(b))))
OPERATOR(aclnnInplaceRemainderTensorTensor, (Tensor a, Tensor b), (b, a), store(a, at::remainder(view(a), view(b))))
OPERATOR(aclnnAtan2, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::atan2(view(a), view(b))))
OPERATOR(aclnnLogAddExp, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::logaddexp(view(a), view(b))))
OPERATOR(aclnnLogicalOr, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::logical_or(view(a), view(b))))
OPERATOR(aclnnLogicalXor, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::logical_xor(view(a), view(b))))
#define BITWISE(NAME, FUNCTION)                                                       \
  OPERATOR(aclnnBitwise##NAME##Tensor, (Tensor a, Tensor b, Tensor out), (a, b, out), \
           store(out, at::bitwise_##FUNCTION(view(a), view(b))))                      \
  OPERATOR(aclnnBitwise##NAME##Scalar, (Tensor a, Scalar b, Tensor out), (a, out),    \
           store(out, at::bitwise_##FUNCTION(view(a), value(b))))                     \
  OPERATOR(aclnnInplaceBitwise##NAME##Tensor, (Tensor a, Tensor b), (b, a),           \
           store(a, at::bitwise_##FUNCTION(view(a), view(b))))                        \
  OPERATOR(aclnnInplaceBitwise##NAME##Scalar, (Tensor a, Scalar b), (a),              \
           store(a, at::bitwise_##FUNCTION(view(a), value(b))))
BITWISE(Or, or)
BITWISE(Xor, xor)
OPERATOR(aclnnInplaceBitwiseAndTensor, (Tensor a, Tensor b), (b, a), store(a, at::bitwise_and(view(a), view(b))))
OPERATOR(aclnnInplaceBitwiseAndScalar, (Tensor a, Scalar b), (a), store(a, at::bitwise_and(view(a), value(b))))
OPERATOR(aclnnInplaceLogicalAnd, (Tensor a, Tensor b), (b, a), store(a, at::logical_and(view(a), view(b))))
OPERATOR(aclnnInplaceLogicalOr, (Tensor a, Tensor b), (b, a), store(a, at::logical_or(view(a), view(b))))

// Division with a rounding mode: 0 none, 1 towards zero, 2 down.
static std::optional<c10::string_view> rounding(int mode) {
  if (mode == 0) return std::nullopt;
  return mode == 1 ? "trunc" : "floor";
}
OPERATOR(aclnnDivMod, (Tensor a, Tensor b, int mode, Tensor out), (a, b, out),
         store(out, at::div(view(a), view(b), rounding(mode))))
OPERATOR(aclnnDivMods, (Tensor a, Scalar b, int mode, Tensor out), (a, out),
         store(out, at::div(view(a), value(b), rounding(mode))))
OPERATOR(aclnnInplaceDivMod, (Tensor a, Tensor b, int mode), (b, a),
         store(a, at::div(view(a), view(b), rounding(mode))))
OPERATOR(aclnnInplaceDivMods, (Tensor a, Scalar b, int mode), (a), store(a, at::div(view(a), value(b), rounding(mode))))

OPERATOR(aclnnLerp, (Tensor a, Tensor b, Tensor w, Tensor out), (a, b, w, out),
         store(out, at::lerp(view(a), view(b), view(w))))
OPERATOR(aclnnInplaceMaskedFillTensor, (Tensor a, Tensor m, Tensor v), (m, v, a),
         view(a).masked_fill_(view(m), view(v)))
OPERATOR(aclnnInplaceMaskedScatter, (Tensor a, Tensor m, Tensor s), (m, s, a),
         view(a).masked_scatter_(view(m), view(s)))
OPERATOR(aclnnLinspace, (Scalar a, Scalar b, int64_t n, Tensor out), (out),
         store(out, at::linspace(value(a), value(b), n)))
OPERATOR(aclnnRange, (Scalar a, Scalar b, Scalar c, Tensor out), (out),
         store(out, at::range(value(a), value(b), value(c))))
OPERATOR(aclnnEye, (int64_t n, int64_t m, Tensor out), (out), store(out, at::eye(n, m)))
OPERATOR(aclnnInplaceTriu, (Tensor a, int64_t d), (a), store(a, at::triu(view(a), d)))
OPERATOR(aclnnInplaceTril, (Tensor a, int64_t d), (a), store(a, at::tril(view(a), d)))

// ---- chance: other numbers than an NPU's, drawn from the same seed and offset
OPERATOR(aclnnRandperm, (int64_t n, int64_t seed, int64_t off, Tensor out), (out),
         store(out, at::randperm(n, gen(seed, off))))
OPERATOR(aclnnInplaceBernoulli, (Tensor a, Scalar p, int64_t seed, int64_t off), (a),
         store(a, at::empty(view(a).sizes(), at::kFloat).bernoulli_(value(p).toDouble(), gen(seed, off))))
OPERATOR(aclnnInplaceBernoulliTensor, (Tensor a, Tensor p, int64_t seed, int64_t off), (p, a),
         store(a, at::bernoulli(view(p).to(at::kFloat), gen(seed, off))))
OPERATOR(aclnnMultinomial, (Tensor a, int64_t n, bool again, int64_t seed, int64_t off, Tensor out), (a, out),
         store(out, at::multinomial(view(a).to(at::kFloat), n, again, gen(seed, off))))
