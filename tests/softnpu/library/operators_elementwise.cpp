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