// Fused attention and dropout. A dropout mask has a bit for each element, the first of a byte lowest; 1 keeps.
#include "operators.h"

using namespace soft;

static at::Tensor unpack(const at::Tensor& mask, at::IntArrayRef shape) {
  int64_t count = 1;
  for (auto size : shape) count *= size;
  auto weights = at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kInt);
  auto bits = mask.flatten().to(at::kInt).unsqueeze(-1).bitwise_and(weights).ne(0);
  return bits.flatten().narrow(0, 0, count).reshape(shape);
}
static at::Tensor draw(int64_t bytes, double drop, int64_t seed, int64_t offset) {
  auto generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(seed) * 1000003u + static_cast<uint64_t>(offset));
  auto kept = at::empty({bytes, 8}, at::kFloat).bernoulli_(1 - drop, generator).to(at::kInt);
  return (kept * at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kInt)).sum(-1).to(at::kByte);
}
OPERATOR(aclnnDropoutGenMask, (Ints shape, double drop, int64_t seed, int64_t offset, Tensor out), (out),
         store(out, draw(view(out).numel(), drop, seed, offset)))
OPERATOR(aclnnDropoutGenMaskV2, (Ints shape, double drop, int64_t seed, int64_t offset, aclDataType, Tensor out), (out),
         store(out, draw(view(out).numel(), drop, seed, offset)))
OPERATOR(aclnnDropoutDoMask, (Tensor a, Tensor mask, double drop, Tensor out), (a, mask, out),
         store(out, view(a) * unpack(view(mask), view(a).sizes()).to(view(a).scalar_type()) / (1 - drop)))

namespace {
// One call of attention over CPU tensors of (batch, heads, length, size) in float; GQA by repeating keys and values.
struct Attention {
  std::string layout;
  int64_t heads;
  double scale, keep;
  int64_t sparse;

  at::Tensor spread(Tensor tensor) const {
    auto x = view(tensor).to(at::kFloat);
    if (layout == "BNSD") return x;
    if (layout == "BSND") return x.transpose(1, 2);
    if (layout == "SBH") return x.view({x.size(0), x.size(1), heads_of(x), -1}).permute({1, 2, 0, 3});
    if (layout == "BSH") return x.view({x.size(0), x.size(1), heads_of(x), -1}).transpose(1, 2);
    throw std::runtime_error("soft-npu: attention layout " + layout);
  }
  // In the layouts that join heads and sizes, keys may have fewer heads of the queries' size.
  int64_t heads_of(const at::Tensor& x) const { return head_size ? x.size(2) / head_size : heads; }
  int64_t head_size = 0;

  void put(Tensor out, const at::Tensor& x) const {
    auto back = layout == "BNSD" ? x : layout == "SBH" ? x.permute({2, 0, 1, 3}) : x.transpose(1, 2);
    store(out, back.reshape(view(out).sizes()));
  }
  static at::Tensor repeated(const at::Tensor& x, const at::Tensor& query) {
    return x.size(1) == query.size(1) ? x : x.repeat_interleave(query.size(1) / x.size(1), 1);
  }
  static at::Tensor gathered(const at::Tensor& gradient, const at::Tensor& x) {
    if (gradient.size(1) == x.size(1)) return gradient;
    return gradient.reshape({x.size(0), x.size(1), -1, x.size(2), x.size(3)}).sum(2);
  }
  at::Tensor scores(const at::Tensor& query, const at::Tensor& key, Tensor shift, Tensor mask) const {
    auto s = at::matmul(query, repeated(key, query).transpose(-1, -2)) * scale;
    if (shift) s = s + view(shift).to(at::kFloat);
    int64_t rows = s.size(-2), columns = s.size(-1);
    if (sparse == 2 || sparse == 3) {
      // A causal mask in compressed form: 2 starts in the upper left corner, 3 ends in the lower right one.
      int64_t first = 1 + (sparse == 3 ? columns - rows : 0);
      return s.masked_fill(at::ones({rows, columns}, at::kBool).triu(first), -1e30);
    }
    if (sparse > 1) throw std::runtime_error("soft-npu: sparse mode " + std::to_string(sparse) + " of attention");
    if (auto seen = view(mask); seen.defined()) return s.masked_fill(seen.to(at::kBool), -1e30);
    return s;
  }
  at::Tensor dropped(const at::Tensor& x, Tensor drop) const {
    if (keep >= 1 || !drop || !view(drop).defined()) return x;
    return x * unpack(view(drop), x.sizes()).to(at::kFloat) / keep;
  }
};
}  // namespace

OPERATOR_KEEPING(aclnnFlashAttentionScore,
                 (Tensor q, Tensor k, Tensor v, Tensor shift, Tensor drop, Tensor, Tensor mask, Ints, double scale,
                  double keep, int64_t, int64_t, int64_t heads, const char* layout, int64_t, int64_t sparse,
                  Tensor greatest, Tensor total, Tensor, Tensor out),
                 (q, k, v, out), (attention = Attention{layout, heads, scale, keep, sparse}), {
                   auto query = attention.spread(q);
                   attention.head_size = query.size(-1);
                   auto key = attention.spread(k), values = attention.spread(v);
                   auto s = attention.scores(query, key, shift, mask);
                   auto high = s.amax(-1, true), e = at::exp(s - high), sum = e.sum(-1, true);
                   auto weights = attention.dropped(e / sum, drop);
                   attention.put(out, at::matmul(weights, Attention::repeated(values, query)));
                   // The hardware keeps eight copies of each.
                   store(greatest, high.expand({-1, -1, -1, 8}).contiguous());
                   store(total, sum.expand({-1, -1, -1, 8}).contiguous());
                 })
OPERATOR_KEEPING(aclnnFlashAttentionScoreGrad,
                 (Tensor q, Tensor k, Tensor v, Tensor g, Tensor shift, Tensor drop, Tensor, Tensor mask, Tensor,
                  Tensor, Tensor, Tensor, Ints, double scale, double keep, int64_t, int64_t, int64_t heads,
                  const char* layout, int64_t, int64_t sparse, Tensor gq, Tensor gk, Tensor gv, Tensor gshift),
                 (q, k, v, g, gq), (attention = Attention{layout, heads, scale, keep, sparse}), {
                   auto query = attention.spread(q);
                   attention.head_size = query.size(-1);
                   auto key = attention.spread(k), values = attention.spread(v), gradient = attention.spread(g);
                   auto weights = at::softmax(attention.scores(query, key, shift, mask), -1);
                   auto kept = attention.dropped(weights, drop);
                   attention.put(gv, Attention::gathered(at::matmul(kept.transpose(-1, -2), gradient), values));
                   auto back = at::matmul(gradient, Attention::repeated(values, query).transpose(-1, -2));
                   back = attention.dropped(back, drop);
                   auto inner = weights * (back - (back * weights).sum(-1, true));
                   attention.put(gq, at::matmul(inner, Attention::repeated(key, query)) * scale);
                   attention.put(gk, Attention::gathered(at::matmul(inner.transpose(-1, -2), query), key) * scale);
                   if (shift && gshift) store(gshift, inner.sum_to_size(view(gshift).sizes()));
                 })
