// How an aclnn operator is written: one OPERATOR line that runs an ATen CPU kernel on the memory of the descriptors.
#pragma once
#include "device.h"
#undef ERROR
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

// ---- the opaque objects of aclnn, as this library defines them
struct aclTensor {
  std::vector<int64_t> size, stride;
  int64_t offset;
  aclDataType type;
  aclFormat format;
  std::vector<int64_t> storage;
  void* data;
};
struct aclScalar {
  at::Scalar value;
  aclDataType type;
};
struct aclIntArray {
  std::vector<int64_t> values;
};
struct aclFloatArray {
  std::vector<float> values;
};
struct aclBoolArray {
  std::vector<char> values;
};
struct aclTensorList {
  std::vector<aclTensor*> values;
};
struct aclScalarList {
  std::vector<aclScalar*> values;
};
struct aclOpExecutor {
  soft::Task task;
};

namespace soft {
// Parameter types of the operators.
using Tensor = const aclTensor*;
using Scalar = const aclScalar*;
using Ints = const aclIntArray*;
using Floats = const aclFloatArray*;
using Bools = const aclBoolArray*;
using Tensors = const aclTensorList*;
using Scalars = const aclScalarList*;

at::ScalarType scalar_type(aclDataType type);
const char* type_name(aclDataType type);

// A descriptor as a CPU tensor over the same memory; undefined where the caller passed none.
at::Tensor view(Tensor tensor);
std::optional<at::Tensor> maybe(Tensor tensor);
std::vector<at::Tensor> views(Tensors list);
inline at::Scalar value(Scalar scalar) { return scalar->value; }
inline at::IntArrayRef ints(Ints array) { return array ? at::IntArrayRef(array->values) : at::IntArrayRef(); }
inline bool flag(Bools array, size_t k) { return array->values[k] != 0; }
// Writes a result where the caller wants it, in its type; nothing where either is missing.
void store(Tensor out, const at::Tensor& result);

struct Described {
  std::vector<const aclTensor*> tensors;
  void add(Tensor tensor) { tensors.push_back(tensor); }
  void add(Tensors list) {
    if (list) tensors.insert(tensors.end(), list->values.begin(), list->values.end());
  }
  template <class Other>
  void add(Other) {}
};
// Makes the executor of one call; the last tensor described is the output, the others are inputs.
int plan(const char* name, aclOpExecutor** executor, std::function<void()> body, const Described& described);
int launch(aclOpExecutor* executor, aclrtStream stream);

template <class... Arguments>
Described describe(Arguments... arguments) {
  Described described;
  (described.add(arguments), ...);
  return described;
}
}  // namespace soft

// OPERATOR(name, (typed parameters), (tensors for the profiler, the output last), body)
// The body runs later, on the stream's thread. Descriptors live until then; text does not and has to be kept:
// OPERATOR_KEEPING(name, (typed parameters), (tensors), (copy = std::string(text)), body)
#define SOFTNPU_UNPACK(...) __VA_ARGS__
#define OPERATOR(NAME, PARAMETERS, TENSORS, ...) OPERATOR_KEEPING(NAME, PARAMETERS, TENSORS, (none_ = 0), __VA_ARGS__)
#define OPERATOR_KEEPING(NAME, PARAMETERS, TENSORS, KEPT, ...)                                                   \
  SOFTNPU_API int NAME##GetWorkspaceSize(SOFTNPU_UNPACK PARAMETERS, uint64_t* workspace_, aclOpExecutor** op_) { \
    *workspace_ = 0;                                                                                             \
    return soft::plan(#NAME, op_, [=, SOFTNPU_UNPACK KEPT]() mutable { __VA_ARGS__; }, soft::describe TENSORS);  \
  }                                                                                                              \
  SOFTNPU_API int NAME(void*, uint64_t, aclOpExecutor* op, aclrtStream stream) { return soft::launch(op, stream); }
