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
  auto [x, z] = at::nll_loss_forward(view(a), view(y).to(at::kLong), {}, red, ig);
  store(out, x);
  store(tw, z);
})
OPERATOR(aclnnNLLLossBackward, (Tensor g, Tensor a, Tensor y, Tensor w, int64_t red, int64_t ig, Tensor tw, Tensor out),
         (g, a, y, out),
         store(out, at::nll_loss_backward(view(g), view(a), view(y).to(at::kLong), {}, red, ig,
                                          view(tw).to(view(a).scalar_type()))))
OPERATOR(aclnnMseLoss, (Tensor a, Tensor b, int64_t red, Tensor out), (a, b, out),
         store(out, at::mse_loss(view(a), view(b), red)))
OPERATOR(aclnnMseLossBackward, (Tensor g, Tensor a, Tensor b, int64_t red, Tensor out), (g, a, b, out),
         store(out, at::mse_loss_backward(view(g), view(a), view(b), red)))
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
OPERATOR(aclnnAny, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, view(a).any()))
OPERATOR(aclnnAll, (Tensor a, Ints d, bool k, Tensor out), (a, out), store(out, view(a).all()))
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
// fused attention, inference forms BNSD / BSND / BSH without dropout
static at::Tensor bnsd(const at::Tensor& x, const std::string& lay, int64_t n) {
  if (lay == "BNSD") return x;
  if (lay == "BSND") return x.transpose(1, 2);
  if (lay == "BSH") return x.view({x.size(0), x.size(1), n, -1}).transpose(1, 2);
  throw std::runtime_error("soft-npu: attention layout " + lay);
}
OPERATOR(aclnnFlashAttentionScore,
         (Tensor q, Tensor k, Tensor v, Tensor pse, Tensor drop, Tensor pad, Tensor mask, Ints prefix, double sc,
          double keep, int64_t pre, int64_t next, int64_t n, char* lay, int64_t, int64_t sparse, Tensor smax,
          Tensor ssum, Tensor sout, Tensor out),
         (q, k, v, out), {
           std::string L_(lay);
           auto Q = bnsd(view(q), L_, n).to(at::kFloat), K = bnsd(view(k), L_, n).to(at::kFloat),
                V = bnsd(view(v), L_, n).to(at::kFloat);
           if (K.size(1) != Q.size(1)) {
             K = K.repeat_interleave(Q.size(1) / K.size(1), 1);
             V = V.repeat_interleave(Q.size(1) / V.size(1), 1);
           }
           auto s_ = at::matmul(Q, K.transpose(-1, -2)) * sc;
           if (auto M = view(mask);
               sparse == 2 || sparse == 3) {  // compressed causal mask: 2 left-up, 3 right-down aligned
             int64_t sq = s_.size(-2), sk = s_.size(-1);
             s_ = s_.masked_fill(at::ones({sq, sk}, at::kBool).triu(1 + (sparse == 3 ? sk - sq : 0)), -1e30);
           } else if (M.defined())
             s_ = s_.masked_fill(M.to(at::kBool), -1e30);
           auto mx = s_.amax(-1, true), e = at::exp(s_ - mx), z = e.sum(-1, true);
           auto y = at::matmul(e / z, V);
           store(smax, mx.expand({-1, -1, -1, 8}).contiguous());
           store(ssum, z.expand({-1, -1, -1, 8}).contiguous());
           store(out, L_ == "BNSD" ? y : L_ == "BSND" ? y.transpose(1, 2) : y.transpose(1, 2).reshape(view(q).sizes()));
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
