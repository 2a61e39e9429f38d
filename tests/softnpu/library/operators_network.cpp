// Operators of networks: products, convolutions, reductions, norms, pooling, losses, indexing and attention.
#include "operators.h"

using namespace soft;

OPERATOR(aclnnMatmul, (Tensor a, Tensor b, Tensor out, int8_t), (a, b, out), store(out, at::matmul(view(a), view(b))))
OPERATOR(aclnnMm, (Tensor a, Tensor b, Tensor out, int8_t), (a, b, out), store(out, at::mm(view(a), view(b))))
OPERATOR(aclnnBatchMatMul, (Tensor a, Tensor b, Tensor out, int8_t), (a, b, out), store(out, at::bmm(view(a), view(b))))
OPERATOR(aclnnAddmm, (Tensor c, Tensor a, Tensor b, Scalar be, Scalar al, Tensor out, int8_t), (c, a, b, out),
         store(out, at::addmm(view(c), view(a), view(b), value(be), value(al))))
OPERATOR(aclnnBaddbmm, (Tensor c, Tensor a, Tensor b, Scalar be, Scalar al, Tensor out, int8_t), (c, a, b, out),
         store(out, at::baddbmm(view(c), view(a), view(b), value(be), value(al))))
OPERATOR(aclnnConvolution,
         (Tensor x, Tensor w, Tensor b, Ints st, Ints pd, Ints dl, bool tr, Ints op, int64_t g, Tensor out, int8_t),
         (x, w, b, out),
         store(out, at::convolution(view(x), view(w), maybe(b), ints(st), ints(pd), ints(dl), tr, ints(op), g)))
OPERATOR(aclnnConvolutionBackward,
         (Tensor g, Tensor x, Tensor w, Ints bs, Ints st, Ints pd, Ints dl, bool tr, Ints op, int64_t gr, Bools m,
          int8_t, Tensor gx, Tensor gw, Tensor gb),
         (g, x, w, gx), {
           std::array<bool, 3> k{flag(m, 0), flag(m, 1), flag(m, 2)};
           auto [a, b, c] = at::convolution_backward(view(g), view(x), view(w),
                                                     bs ? at::OptionalIntArrayRef(ints(bs)) : at::OptionalIntArrayRef(),
                                                     ints(st), ints(pd), ints(dl), tr, ints(op), gr, k);
           store(gx, a);
           store(gw, b);
           store(gb, c);
         })
OPERATOR(aclnnSoftmax, (Tensor a, int64_t d, Tensor out), (a, out), store(out, at::softmax(view(a), d)))
OPERATOR(aclnnLogSoftmax, (Tensor a, int64_t d, Tensor out), (a, out), store(out, at::log_softmax(view(a), d)))
OPERATOR(aclnnSoftmaxBackward, (Tensor g, Tensor y, int64_t d, Tensor out), (g, y, out),
         store(out, at::_softmax_backward_data(view(g), view(y), d, view(y).scalar_type())))
OPERATOR(aclnnLogSoftmaxBackward, (Tensor g, Tensor y, int64_t d, Tensor out), (g, y, out),
         store(out, at::_log_softmax_backward_data(view(g), view(y), d, view(y).scalar_type())))
OPERATOR(aclnnNLLLoss, (Tensor a, Tensor y, Tensor w, int64_t red, int64_t ig, Tensor out, Tensor tw), (a, y, out), {
  auto [x, z] = at::nll_loss_forward(view(a), view(y).to(at::kLong), maybe(w), red, ig);
  store(out, x);
  store(tw, z);
})
OPERATOR(aclnnNLLLossBackward, (Tensor g, Tensor a, Tensor y, Tensor w, int64_t red, int64_t ig, Tensor tw, Tensor out),
         (g, a, y, out),
         store(out, at::nll_loss_backward(view(g), view(a), view(y).to(at::kLong), maybe(w), red, ig,
                                          view(tw).to(view(a).scalar_type()))))
OPERATOR(aclnnMseLoss, (Tensor a, Tensor b, int64_t red, Tensor out), (a, b, out),
         store(out, at::mse_loss(view(a), view(b), red)))
OPERATOR(aclnnMseLossBackward, (Tensor g, Tensor a, Tensor b, int64_t red, Tensor out), (g, a, b, out),
         store(out, at::mse_loss_backward(view(g), view(a), view(b), red)))
static at::OptionalIntArrayRef all_or(Ints d) {
  return d && !d->values.empty() ? at::OptionalIntArrayRef(ints(d)) : at::OptionalIntArrayRef();
}
static at::Tensor dims(Tensor a, Ints d, bool mean, bool keep, aclDataType dt) {
  auto x = view(a).to(scalar_type(dt));
  if (!d || d->values.empty()) {
    auto y = mean ? x.mean() : x.sum();
    return y;
  }
  return mean ? x.mean(ints(d), keep) : x.sum(ints(d), keep);
}
OPERATOR(aclnnMean, (Tensor a, Ints d, bool k, aclDataType dt, Tensor out), (a, out),
         store(out, dims(a, d, true, k, dt)))
OPERATOR(aclnnReduceSum, (Tensor a, Ints d, bool k, aclDataType dt, Tensor out), (a, out),
         store(out, dims(a, d, false, k, dt)))
OPERATOR(aclnnMax, (Tensor a, Tensor out), (a, out), store(out, view(a).max()))
OPERATOR(aclnnMin, (Tensor a, Tensor out), (a, out), store(out, view(a).min()))
OPERATOR(aclnnMaxDim, (Tensor a, int64_t d, bool k, Tensor out, Tensor ix), (a, out), {
  auto [x, y] = view(a).max(d, k);
  store(out, x);
  store(ix, y);
})
OPERATOR(aclnnArgMax, (Tensor a, int64_t d, bool k, Tensor out), (a, out), store(out, view(a).argmax(d, k)))
OPERATOR(aclnnCat, (Tensors a, int64_t d, Tensor out), (a, out), store(out, at::cat(views(a), d)))
OPERATOR(aclnnStack, (Tensors a, int64_t d, Tensor out), (a, out), store(out, at::stack(views(a), d)))
OPERATOR(aclnnEmbedding, (Tensor w, Tensor x, Tensor out), (w, x, out),
         store(out, at::embedding(view(w), view(x).to(at::kLong))))
OPERATOR(aclnnEmbeddingDenseBackward, (Tensor g, Tensor x, int64_t n, int64_t p, bool f, Tensor out), (g, x, out),
         store(out, at::embedding_dense_backward(view(g), view(x).to(at::kLong), n, p, f)))
OPERATOR(aclnnIndexSelect, (Tensor a, int64_t d, Tensor x, Tensor out), (a, x, out),
         store(out, at::index_select(view(a), d, view(x))))
OPERATOR(aclnnIndex, (Tensor a, Tensors ix, Tensor out), (a, out), {
  c10::List<std::optional<at::Tensor>> q;
  for (auto* x : ix->values) q.push_back(x && !(x->size.size() == 1 && x->size[0] == 0) ? maybe(x) : std::nullopt);
  store(out, at::index(view(a), q));
})
OPERATOR(aclnnMaxPool2dWithMask, (Tensor a, Ints k, Ints sd, Ints p, Ints d, bool c, Tensor out, Tensor ix), (a, out),
         store(out, at::max_pool2d(view(a), ints(k), ints(sd), ints(p), ints(d), c)))
OPERATOR(aclnnMaxPool2dWithMaskBackward,
         (Tensor g, Tensor a, Tensor ix, Ints k, Ints sd, Ints p, Ints d, bool c, Tensor out), (g, a, out), {
           auto x = at::max_pool2d_with_indices(view(a), ints(k), ints(sd), ints(p), ints(d), c);
           store(out, at::max_pool2d_with_indices_backward(view(g), view(a), ints(k), ints(sd), ints(p), ints(d), c,
                                                           std::get<1>(x)));
         })
OPERATOR(aclnnAdaptiveAvgPool2d, (Tensor a, Ints k, Tensor out), (a, out),
         store(out, at::adaptive_avg_pool2d(view(a), ints(k))))
OPERATOR(aclnnAdaptiveAvgPool2dBackward, (Tensor g, Tensor a, Tensor out), (g, a, out),
         store(out, at::_adaptive_avg_pool2d_backward(view(g), view(a))))
OPERATOR(aclnnBatchNorm,
         (Tensor x, Tensor w, Tensor b, Tensor rm, Tensor rv, bool tr, double mo, double ep, Tensor out, Tensor sm,
          Tensor sv),
         (x, w, b, out), {
           auto [y, m, v] = at::native_batch_norm(view(x), maybe(w), maybe(b), maybe(rm), maybe(rv), tr, mo, ep);
           store(out, y);
           if (m.numel()) {
             store(sm, m);
             store(sv, v);
           }
         })
OPERATOR(aclnnBatchNormBackward,
         (Tensor g, Tensor x, Tensor w, Tensor rm, Tensor rv, Tensor sm, Tensor sv, bool tr, double ep, Bools m,
          Tensor gx, Tensor gw, Tensor gb),
         (g, x, w, gx), {
           auto [a, b, c] = at::native_batch_norm_backward(view(g), view(x), maybe(w), maybe(rm), maybe(rv), maybe(sm),
                                                           maybe(sv), tr, ep, {flag(m, 0), flag(m, 1), flag(m, 2)});
           store(gx, a);
           store(gw, b);
           store(gb, c);
         })
OPERATOR(aclnnLayerNorm, (Tensor x, Ints n, Tensor w, Tensor b, double ep, Tensor out, Tensor mo, Tensor ro),
         (x, w, b, out), {
           auto [y, m, v] = at::native_layer_norm(view(x), ints(n), maybe(w), maybe(b), ep);
           store(out, y);
           store(mo, m);
           store(ro, v);
         })
OPERATOR(aclnnLayerNormBackward,
         (Tensor g, Tensor x, Ints n, Tensor m, Tensor v, Tensor w, Tensor b, Bools k, Tensor gx, Tensor gw, Tensor gb),
         (g, x, w, gx), {
           auto [a, c, d] = at::native_layer_norm_backward(view(g), view(x), ints(n), view(m), view(v), maybe(w),
                                                           maybe(b), {flag(k, 0), flag(k, 1), flag(k, 2)});
           store(gx, a);
           store(gw, c);
           store(gb, d);
         })
// data-dependent output size: the shape is read back with aclGetViewShape after the call
OPERATOR(aclnnMaskedSelect, (Tensor a, Tensor m, Tensor out), (a, out), {
  auto v = at::masked_select(view(a), view(m));
  auto* w = const_cast<aclTensor*>(out);
  w->size = {v.numel()};
  w->stride = {1};
  store(out, v);
})
OPERATOR(aclnnConstantPadNd, (Tensor a, Ints p, Scalar v, Tensor out), (a, out),
         store(out, at::constant_pad_nd(view(a), ints(p), value(v))))
OPERATOR(aclnnCumsum, (Tensor a, int64_t d, aclDataType, Tensor out), (a, out), store(out, at::cumsum(view(a), d)))
OPERATOR(aclnnTopk, (Tensor a, int64_t k, int64_t d, bool big, bool so, Tensor out, Tensor ix), (a, out), {
  auto [x, y] = at::topk(view(a), k, d, big, so);
  store(out, x);
  store(ix, y);
})
OPERATOR(aclnnSort, (Tensor a, bool st_, int64_t d, bool de, Tensor out, Tensor ix), (a, out), {
  auto [x, y] = at::sort(view(a), st_, d, de);
  store(out, x);
  store(ix, y);
})
OPERATOR(aclnnTriu, (Tensor a, int64_t d, Tensor out), (a, out), store(out, at::triu(view(a), d)))
OPERATOR(aclnnTril, (Tensor a, int64_t d, Tensor out), (a, out), store(out, at::tril(view(a), d)))

// ---- reductions
OPERATOR(aclnnAny, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, at::any(view(a), all_or(d), k)))
OPERATOR(aclnnAll, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, at::all(view(a), all_or(d), k)))
OPERATOR(aclnnAmax, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, at::amax(view(a), ints(d), k)))
OPERATOR(aclnnAmin, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, at::amin(view(a), ints(d), k)))
OPERATOR(aclnnArgMin, (Tensor a, int64_t d, bool k, Tensor out), (a, out), store(out, view(a).argmin(d, k)))
OPERATOR(aclnnMinDim, (Tensor a, int64_t d, bool k, Tensor out, Tensor ix), (a, out), {
  auto [x, y] = view(a).min(d, k);
  store(out, x);
  store(ix, y);
})
OPERATOR(aclnnProd, (Tensor a, aclDataType dt, Tensor out), (a, out), store(out, at::prod(view(a), scalar_type(dt))))
OPERATOR(aclnnProdDim, (Tensor a, int64_t d, bool k, aclDataType dt, Tensor out), (a, out),
         store(out, at::prod(view(a), d, k, scalar_type(dt))))
OPERATOR(aclnnVar, (Tensor a, Ints d, bool unbiased, bool k, Tensor out), (a, out),
         store(out, at::var(view(a), all_or(d), at::Scalar(int64_t(unbiased)), k)))
OPERATOR(aclnnVarCorrection, (Tensor a, Ints d, int64_t c, bool k, Tensor out), (a, out),
         store(out, at::var(view(a), all_or(d), at::Scalar(c), k)))
OPERATOR(aclnnStd, (Tensor a, Ints d, int64_t c, bool k, Tensor out), (a, out),
         store(out, at::std(view(a), all_or(d), at::Scalar(c), k)))
OPERATOR(aclnnVarMean, (Tensor a, Ints d, int64_t c, bool k, Tensor mean, Tensor out), (a, mean, out), {
  auto [x, y] = at::var_mean(view(a), all_or(d), at::Scalar(c), k);
  store(out, x);
  store(mean, y);
})
OPERATOR(aclnnLinalgVectorNorm, (Tensor a, Scalar p, Ints d, bool k, aclDataType dt, Tensor out), (a, out),
         store(out, at::linalg_vector_norm(view(a), value(p), all_or(d), k, scalar_type(dt))))
OPERATOR(aclnnNorm, (Tensor a, Scalar p, Ints d, bool k, Tensor out), (a, out),
         store(out, at::linalg_vector_norm(view(a), value(p), all_or(d), k)))
OPERATOR(aclnnLogSumExp, (Tensor a, Ints d, bool k, Tensor out), (a, out),
         store(out, at::logsumexp(view(a), ints(d), k)))
OPERATOR(aclnnCumprod, (Tensor a, Scalar d, aclDataType, Tensor out), (a, out),
         store(out, at::cumprod(view(a), value(d).toLong())))

// ---- products
OPERATOR(aclnnDot, (Tensor a, Tensor b, Tensor out), (a, b, out), store(out, at::dot(view(a), view(b))))
OPERATOR(aclnnMv, (Tensor a, Tensor b, Tensor out, int8_t), (a, b, out), store(out, at::mv(view(a), view(b))))
OPERATOR(aclnnAddmv, (Tensor c, Tensor a, Tensor b, Scalar al, Scalar be, Tensor out, int8_t), (c, a, b, out),
         store(out, at::addmv(view(c), view(a), view(b), value(be), value(al))))
OPERATOR(aclnnAddbmm, (Tensor c, Tensor a, Tensor b, Scalar be, Scalar al, Tensor out, int8_t), (c, a, b, out),
         store(out, at::addbmm(view(c), view(a), view(b), value(be), value(al))))
OPERATOR(aclnnInplaceAddmm, (Tensor c, Tensor a, Tensor b, Scalar be, Scalar al, int8_t), (a, b, c),
         store(c, at::addmm(view(c), view(a), view(b), value(be), value(al))))
OPERATOR(aclnnConvDepthwise2d, (Tensor x, Tensor w, Ints k, Tensor b, Ints st, Ints pd, Ints dl, Tensor out, int8_t),
         (x, w, b, out),
         store(out, at::convolution(view(x), view(w), maybe(b), ints(st), ints(pd), ints(dl), false, {0, 0},
                                    view(x).size(1))))

// ---- norms
OPERATOR(aclnnGroupNorm,
         (Tensor x, Tensor w, Tensor b, int64_t n, int64_t c, int64_t hw, int64_t groups, double eps, Tensor out,
          Tensor mo, Tensor ro),
         (x, w, b, out), {
           auto [y, m, r] = at::native_group_norm(view(x).contiguous(), maybe(w), maybe(b), n, c, hw, groups, eps);
           store(out, y);
           store(mo, m);
           store(ro, r);
         })
OPERATOR(aclnnGroupNormBackward,
         (Tensor g, Tensor x, Tensor m, Tensor r, Tensor w, int64_t n, int64_t c, int64_t hw, int64_t groups, Bools k,
          Tensor gx, Tensor gw, Tensor gb),
         (g, x, w, gx), {
           auto [a, b, d] =
               at::native_group_norm_backward(view(g).contiguous(), view(x).contiguous(), view(m), view(r), maybe(w), n,
                                              c, hw, groups, {flag(k, 0), flag(k, 1), flag(k, 2)});
           store(gx, a);
           store(gw, b);
           store(gb, d);
         })
OPERATOR(aclnnRmsNorm, (Tensor x, Tensor w, double eps, Tensor out, Tensor ro), (x, w, out), {
  auto wide = view(x).to(at::kFloat);
  std::vector<int64_t> last;
  for (int64_t k = view(w).dim(); k > 0; k--) last.push_back(-k);
  auto r = at::rsqrt(wide.pow(2).mean(last, true) + eps);
  store(out, (wide * r).to(view(x).scalar_type()) * view(w));
  store(ro, r);
})
OPERATOR(aclnnSwiGlu, (Tensor x, int64_t d, Tensor out), (x, out), {
  auto halves = view(x).chunk(2, d);
  store(out, at::silu(halves[0]) * halves[1]);
})

// ---- pooling and resizing
static std::optional<int64_t> divisor(int64_t d) { return d ? std::optional<int64_t>(d) : std::nullopt; }
OPERATOR(aclnnAvgPool2d, (Tensor a, Ints k, Ints sd, Ints p, bool c, bool pads, int64_t d, int8_t, Tensor out),
         (a, out), store(out, at::avg_pool2d(view(a), ints(k), ints(sd), ints(p), c, pads, divisor(d))))
OPERATOR(aclnnAvgPool2dBackward,
         (Tensor g, Tensor a, Ints k, Ints sd, Ints p, bool c, bool pads, int64_t d, int8_t, Tensor out), (g, a, out),
         store(out, at::avg_pool2d_backward(view(g), view(a), ints(k), ints(sd), ints(p), c, pads, divisor(d))))
OPERATOR(aclnnUpsampleNearest2d, (Tensor a, Ints size, Tensor out), (a, out),
         store(out, at::upsample_nearest2d(view(a), ints(size))))
OPERATOR(aclnnUpsampleNearest2dV2, (Tensor a, Ints size, float, float, Tensor out), (a, out),
         store(out, at::upsample_nearest2d(view(a), ints(size))))
OPERATOR(aclnnUpsampleNearest2dBackward, (Tensor g, Ints size, Ints in, double, double, Tensor out), (g, out),
         store(out, at::upsample_nearest2d_backward(view(g), ints(size), ints(in))))
OPERATOR(aclnnUpsampleBilinear2d, (Tensor a, Ints size, bool corners, double, double, Tensor out), (a, out),
         store(out, at::upsample_bilinear2d(view(a), ints(size), corners)))
OPERATOR(aclnnUpsampleBilinear2dBackward, (Tensor g, Ints size, Ints in, bool corners, double, double, Tensor out),
         (g, out), store(out, at::upsample_bilinear2d_backward(view(g), ints(size), ints(in), corners)))
OPERATOR(aclnnUpsampleBilinear2dBackwardV2, (Tensor g, Ints size, Ints in, bool corners, double, double, Tensor out),
         (g, out), store(out, at::upsample_bilinear2d_backward(view(g), ints(size), ints(in), corners)))
OPERATOR(aclnnReflectionPad2d, (Tensor a, Ints p, Tensor out), (a, out),
         store(out, at::reflection_pad2d(view(a), ints(p))))
OPERATOR(aclnnReplicationPad2d, (Tensor a, Ints p, Tensor out), (a, out),
         store(out, at::replication_pad2d(view(a), ints(p))))

// ---- losses
OPERATOR(aclnnBinaryCrossEntropy, (Tensor a, Tensor y, Tensor w, int64_t red, Tensor out), (a, y, out),
         store(out, at::binary_cross_entropy(view(a), view(y), maybe(w), red)))
OPERATOR(aclnnBinaryCrossEntropyBackward, (Tensor g, Tensor a, Tensor y, Tensor w, int64_t red, Tensor out),
         (g, a, y, out), store(out, at::binary_cross_entropy_backward(view(g), view(a), view(y), maybe(w), red)))
OPERATOR(aclnnBinaryCrossEntropyWithLogits, (Tensor a, Tensor y, Tensor w, Tensor pw, int64_t red, Tensor out),
         (a, y, out), store(out, at::binary_cross_entropy_with_logits(view(a), view(y), maybe(w), maybe(pw), red)))
OPERATOR(aclnnBinaryCrossEntropyWithLogitsBackward,
         (Tensor g, Tensor a, Tensor y, Tensor w, Tensor pw, int64_t red, Tensor out), (g, a, y, out), {
           auto x = view(a), t = view(y), p = at::sigmoid(x);
           auto d = pw ? p * (view(pw) * t + 1 - t) - view(pw) * t : p - t;
           if (auto weight = maybe(w)) d = d * *weight;
           d = d * view(g);
           store(out, red == at::Reduction::Mean ? d / x.numel() : d);
         })
OPERATOR(aclnnL1Loss, (Tensor a, Tensor b, int64_t red, Tensor out), (a, b, out),
         store(out, at::l1_loss(view(a), view(b), red)))
OPERATOR(aclnnL1LossBackward, (Tensor g, Tensor a, Tensor b, int64_t red, Tensor out), (g, a, b, out), {
  auto d = at::sign(view(a) - view(b)) * view(g);
  store(out, red == at::Reduction::Mean ? d / view(a).numel() : d);
})
OPERATOR(aclnnSmoothL1Loss, (Tensor a, Tensor b, int64_t red, float beta, Tensor out), (a, b, out),
         store(out, at::smooth_l1_loss(view(a), view(b), red, beta)))
OPERATOR(aclnnSmoothL1LossBackward, (Tensor g, Tensor a, Tensor b, int64_t red, float beta, Tensor out), (g, a, b, out),
         store(out, at::smooth_l1_loss_backward(view(g), view(a), view(b), red, beta)))
OPERATOR(aclnnKlDiv, (Tensor a, Tensor b, int64_t red, bool logs, Tensor out), (a, b, out),
         store(out, at::kl_div(view(a), view(b), red, logs)))
OPERATOR(aclnnKlDivBackward, (Tensor g, Tensor a, Tensor b, int64_t red, bool logs, Tensor out), (g, a, b, out), {
  auto d = -(logs ? at::exp(view(b)) : view(b)) * view(g);
  store(out, red == at::Reduction::Mean ? d / view(a).numel() : d);
})
OPERATOR(aclnnKlDivTargetBackward, (Tensor g, Tensor a, Tensor b, int64_t red, bool logs, Tensor out), (g, a, b, out), {
  auto x = view(a), y = view(b);
  auto d = logs ? at::exp(y) * (y - x + 1) : at::where(y > 0, at::log(y) + 1 - x, at::zeros_like(y));
  d = d * view(g);
  store(out, red == at::Reduction::Mean ? d / x.numel() : d);
})
OPERATOR(aclnnOneHot, (Tensor a, int n, Tensor on, Tensor off, int64_t d, Tensor out), (a, out), {
  auto hot = at::one_hot(view(a).to(at::kLong), n).to(at::kBool);
  store(out, at::where(hot, view(on).reshape({}), view(off).reshape({})));
})

// ---- indexing
OPERATOR(aclnnGather, (Tensor a, int64_t d, Tensor x, Tensor out), (a, x, out),
         store(out, at::gather(view(a), d, view(x).to(at::kLong))))
static at::Tensor scattered(Tensor a, int64_t d, Tensor x, const at::Tensor& source, int64_t reduce) {
  auto index = view(x).to(at::kLong);
  if (reduce == 0) return at::scatter(view(a), d, index, source);
  return at::scatter(view(a), d, index, source, reduce == 1 ? "add" : "multiply");
}
OPERATOR(aclnnScatter, (Tensor a, int64_t d, Tensor x, Tensor s, int64_t reduce, Tensor out), (a, x, s, out),
         store(out, scattered(a, d, x, view(s), reduce)))
OPERATOR(aclnnInplaceScatter, (Tensor a, int64_t d, Tensor x, Tensor s, int64_t reduce), (x, s, a),
         store(a, scattered(a, d, x, view(s), reduce)))
OPERATOR(aclnnScatterValue, (Tensor a, int64_t d, Tensor x, Scalar s, int64_t reduce, Tensor out), (a, x, out),
         store(out, scattered(a, d, x, at::full(view(x).sizes(), value(s), view(a).options()), reduce)))
OPERATOR(aclnnInplaceScatterValue, (Tensor a, int64_t d, Tensor x, Scalar s, int64_t reduce), (x, a),
         store(a, scattered(a, d, x, at::full(view(x).sizes(), value(s), view(a).options()), reduce)))
OPERATOR(aclnnScatterAdd, (Tensor a, int64_t d, Tensor x, Tensor s, Tensor out), (a, x, s, out),
         store(out, at::scatter_add(view(a), d, view(x).to(at::kLong), view(s))))
OPERATOR(aclnnIndexAdd, (Tensor a, int64_t d, Tensor x, Tensor s, Scalar k, Tensor out), (a, x, s, out),
         store(out, at::index_add(view(a), d, view(x), view(s), value(k))))
OPERATOR(aclnnInplaceIndexCopy, (Tensor a, int64_t d, Tensor x, Tensor s), (x, s, a),
         store(a, at::index_copy(view(a), d, view(x).to(at::kLong), view(s))))
OPERATOR(aclnnIndexPutImpl, (Tensor a, Tensors x, Tensor v, bool accumulate, bool), (v, a), {
  c10::List<std::optional<at::Tensor>> indices;
  for (auto* one : x->values) {
    bool absent = !one || (one->size.size() == 1 && one->size[0] == 0);
    indices.push_back(absent ? std::nullopt : maybe(one));
  }
  view(a).index_put_(indices, view(v), accumulate);
})
OPERATOR(aclnnArgsort, (Tensor a, int64_t d, bool descending, Tensor out), (a, out),
         store(out, at::argsort(view(a), d, descending)))
OPERATOR(aclnnRepeat, (Tensor a, Ints n, Tensor out), (a, out), store(out, view(a).repeat(ints(n))))
OPERATOR(aclnnRepeatInterleaveIntWithDim, (Tensor a, int64_t n, int64_t d, int64_t, Tensor out), (a, out),
         store(out, at::repeat_interleave(view(a), n, d)))
OPERATOR(aclnnRepeatInterleaveInt, (Tensor a, int64_t n, int64_t, Tensor out), (a, out),
         store(out, at::repeat_interleave(view(a), n)))
OPERATOR(aclnnExpand, (Tensor a, Ints size, Tensor out), (a, out), store(out, view(a).expand(ints(size))))
OPERATOR(aclnnFlip, (Tensor a, Ints d, Tensor out), (a, out), store(out, at::flip(view(a), ints(d))))
OPERATOR(aclnnRoll, (Tensor a, Ints n, Ints d, Tensor out), (a, out), store(out, at::roll(view(a), ints(n), ints(d))))
OPERATOR(aclnnPermute, (Tensor a, Ints d, Tensor out), (a, out), store(out, view(a).permute(ints(d))))
static void find_nonzero(Tensor a, Tensor out, bool by_dimension) {
  // The size depends on the data: torch_npu reads it back with aclGetViewShape.
  auto found = at::nonzero(view(a));
  found = (by_dimension ? found.t() : found).contiguous();
  auto* result = const_cast<aclTensor*>(out);
  result->size = found.sizes().vec();
  result->stride = found.strides().vec();
  store(out, found);
}
OPERATOR(aclnnNonzero, (Tensor a, Tensor out), (a, out), find_nonzero(a, out, false))
OPERATOR(aclnnNonzeroV2, (Tensor a, Tensor out), (a, out), find_nonzero(a, out, true))
