// Operators of optimizers: the foreach calls and the fused steps.
#include "operators.h"

using namespace soft;

#define FOREACH(NAME, PARAMETERS, TENSORS, ...)                          \
  OPERATOR(aclnnForeach##NAME, PARAMETERS, TENSORS, {                    \
    auto targets = views(out);                                           \
    auto A = views(a);                                                   \
    for (size_t k = 0; k < A.size(); k++) targets[k].copy_(__VA_ARGS__); \
  })
FOREACH(AddList, (Tensors a, Tensors b, Tensor al, Tensors out), (a, b, out),
        at::add(A[k], view(b->values[k]), view(al).item()))
FOREACH(AddListV2, (Tensors a, Tensors b, Scalar al, Tensors out), (a, b, out),
        at::add(A[k], view(b->values[k]), value(al)))
FOREACH(AddScalar, (Tensors a, Tensor x, Tensors out), (a, out), at::add(A[k], view(x).item()))
FOREACH(AddScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::add(A[k], value(x)))
FOREACH(MulScalar, (Tensors a, Tensor x, Tensors out), (a, out), at::mul(A[k], view(x).item()))
FOREACH(MulScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::mul(A[k], value(x)))
FOREACH(MulList, (Tensors a, Tensors b, Tensors out), (a, b, out), at::mul(A[k], view(b->values[k])))
FOREACH(AddcmulScalar, (Tensors a, Tensors b, Tensors c, Tensor x, Tensors out), (a, b, c, out),
        at::addcmul(A[k], view(b->values[k]), view(c->values[k]), view(x).item()))
FOREACH(AddcmulScalarV2, (Tensors a, Tensors b, Tensors c, Scalar x, Tensors out), (a, b, c, out),
        at::addcmul(A[k], view(b->values[k]), view(c->values[k]), value(x)))
FOREACH(AddcdivScalar, (Tensors a, Tensors b, Tensors c, Tensor x, Tensors out), (a, b, c, out),
        at::addcdiv(A[k], view(b->values[k]), view(c->values[k]), view(x).item()))
FOREACH(AddcdivScalarV2, (Tensors a, Tensors b, Tensors c, Scalar x, Tensors out), (a, b, c, out),
        at::addcdiv(A[k], view(b->values[k]), view(c->values[k]), value(x)))
FOREACH(AddcdivScalarList, (Tensors a, Tensors b, Tensors c, Tensor x, Tensors out), (a, b, c, out),
        at::addcdiv(A[k], view(b->values[k]), view(c->values[k]), view(x)[k].item()))
FOREACH(LerpScalar, (Tensors a, Tensors b, Scalar x, Tensors out), (a, b, out),
        at::lerp(A[k], view(b->values[k]), value(x)))
FOREACH(DivList, (Tensors a, Tensors b, Tensors out), (a, b, out), at::div(A[k], view(b->values[k])))
FOREACH(DivScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::div(A[k], value(x)))
FOREACH(DivScalarList, (Tensors a, Scalars x, Tensors out), (a, out), at::div(A[k], value(x->values[k])))
FOREACH(Sqrt, (Tensors a, Tensors out), (a, out), at::sqrt(A[k]))

OPERATOR(aclnnApplyAdamWV2,
         (Tensor w, Tensor m, Tensor v, Tensor mx, Tensor g, Tensor st, float lr, float b1, float b2, float wd,
          float eps, bool ams, bool maxi),
         (g, w), {
           auto W = view(w), M = view(m), V = view(v), G = maxi ? -view(g) : view(g);
           double n = view(st).item<double>() + 1;  // torch_npu passes the count before this step

           W.mul_(1 - lr * wd);
           M.mul_(b1).add_(G, 1 - b1);
           V.mul_(b2).addcmul_(G, G, 1 - b2);
           W.addcdiv_(M, (V.sqrt() / std::sqrt(1 - std::pow(b2, n))).add_(eps), -lr / (1 - std::pow(b1, n)));
         })

// ---- more foreach calls
FOREACH(Norm, (Tensors a, Scalar p, Tensors out), (a, out), at::linalg_vector_norm(A[k], value(p)))
FOREACH(Copy, (Tensors a, Tensors out), (a, out), A[k])
FOREACH(Neg, (Tensors a, Tensors out), (a, out), at::neg(A[k]))
FOREACH(Reciprocal, (Tensors a, Tensors out), (a, out), at::reciprocal(A[k]))
FOREACH(Exp, (Tensors a, Tensors out), (a, out), at::exp(A[k]))
FOREACH(Abs, (Tensors a, Tensors out), (a, out), at::abs(A[k]))
FOREACH(Sign, (Tensors a, Tensors out), (a, out), at::sign(A[k]))
FOREACH(SubList, (Tensors a, Tensors b, Tensor al, Tensors out), (a, b, out),
        at::sub(A[k], view(b->values[k]), view(al).item()))
FOREACH(SubListV2, (Tensors a, Tensors b, Scalar al, Tensors out), (a, b, out),
        at::sub(A[k], view(b->values[k]), value(al)))
FOREACH(SubScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::sub(A[k], value(x)))
FOREACH(MaximumList, (Tensors a, Tensors b, Tensors out), (a, b, out), at::maximum(A[k], view(b->values[k])))
FOREACH(MinimumList, (Tensors a, Tensors b, Tensors out), (a, b, out), at::minimum(A[k], view(b->values[k])))
FOREACH(MaximumScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::clamp_min(A[k], value(x)))
FOREACH(MinimumScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::clamp_max(A[k], value(x)))
FOREACH(PowScalarV2, (Tensors a, Scalar x, Tensors out), (a, out), at::pow(A[k], value(x)))
FOREACH(PowScalarAndTensor, (Scalar x, Tensors a, Tensors out), (a, out), at::pow(value(x), A[k]))
FOREACH(AddScalarList, (Tensors a, Scalars x, Tensors out), (a, out), at::add(A[k], value(x->values[k])))
FOREACH(MulScalarList, (Tensors a, Scalars x, Tensors out), (a, out), at::mul(A[k], value(x->values[k])))
FOREACH(LerpList, (Tensors a, Tensors b, Tensors w, Tensors out), (a, b, w, out),
        at::lerp(A[k], view(b->values[k]), view(w->values[k])))
FOREACH(AddcmulScalarList, (Tensors a, Tensors b, Tensors c, Tensor x, Tensors out), (a, b, c, out),
        at::addcmul(A[k], view(b->values[k]), view(c->values[k]), view(x)[k].item()))
OPERATOR(aclnnForeachZeroInplace, (Tensors a), (a), {
  for (auto& one : views(a)) one.zero_();
})
// The gradients of a scaled loss: unscaled in place, and told whether one of them has overflowed.
OPERATOR(aclnnForeachNonFiniteCheckAndUnscale, (Tensors a, Tensor found, Tensor scale), (scale, a), {
  for (auto& one : views(a)) {
    if (!at::isfinite(one).all().item<bool>()) view(found).fill_(1);
    one.mul_(view(scale).item());
  }
})
