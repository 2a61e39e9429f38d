// Descriptors of aclnn: their creation, their release, and the step from a descriptor to a CPU tensor.
#include "operators.h"

namespace soft {
at::ScalarType scalar_type(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return at::kFloat;
    case ACL_FLOAT16: return at::kHalf;
    case ACL_BF16: return at::kBFloat16;
    case ACL_DOUBLE: return at::kDouble;
    case ACL_INT8: return at::kChar;
    case ACL_INT16: return at::kShort;
    case ACL_INT32: return at::kInt;
    case ACL_INT64: return at::kLong;
    case ACL_UINT8: return at::kByte;
    case ACL_BOOL: return at::kBool;
    case ACL_COMPLEX64: return at::kComplexFloat;
    case ACL_COMPLEX128: return at::kComplexDouble;
    default: throw std::runtime_error("soft-npu: data type " + std::to_string(static_cast<int>(type)));
  }
}
const char* type_name(aclDataType type) {
  switch (type) {
    case ACL_FLOAT: return "FLOAT";
    case ACL_FLOAT16: return "FLOAT16";
    case ACL_BF16: return "DT_BF16";
    case ACL_DOUBLE: return "DOUBLE";
    case ACL_INT8: return "INT8";
    case ACL_INT16: return "INT16";
    case ACL_INT32: return "INT32";
    case ACL_INT64: return "INT64";
    case ACL_UINT8: return "UINT8";
    case ACL_BOOL: return "BOOL";
    default: return "UNDEFINED";
  }
}
const char* format_name(aclFormat format) {
  switch (format) {
    case ACL_FORMAT_NCHW: return "NCHW";
    case ACL_FORMAT_NHWC: return "NHWC";
    case ACL_FORMAT_NC1HWC0: return "NC1HWC0";
    case ACL_FORMAT_FRACTAL_Z: return "FRACTAL_Z";
    case ACL_FORMAT_FRACTAL_NZ: return "FRACTAL_NZ";
    case ACL_FORMAT_NCDHW: return "NCDHW";
    case ACL_FORMAT_NDC1HWC0: return "NDC1HWC0";
    case ACL_FORMAT_NCL: return "NCL";
    case ACL_FORMAT_HWCN: return "HWCN";
    default: return "ND";
  }
}
void TensorNotes::add(const std::string& shape, const std::string& type, const std::string& format) {
  const char* separator = types.empty() ? "" : ";";
  shapes += separator + shape;
  types += separator + type;
  formats += separator + format;
}

at::Tensor view(Tensor tensor) {
  if (!tensor) return {};
  bool empty = false;
  for (auto dimension : tensor->size) empty |= dimension == 0;
  if (!tensor->data && !empty) return {};
  auto type = scalar_type(tensor->type);
  char* begin = static_cast<char*>(tensor->data) + tensor->offset * static_cast<int64_t>(c10::elementSize(type));
  return at::from_blob(begin, tensor->size, tensor->stride, at::TensorOptions().dtype(type));
}
std::optional<at::Tensor> maybe(Tensor tensor) {
  auto seen = view(tensor);
  return seen.defined() ? std::optional<at::Tensor>(seen) : std::nullopt;
}
std::vector<at::Tensor> views(Tensors list) {
  std::vector<at::Tensor> all;
  for (auto* tensor : list->values) all.push_back(view(tensor));
  return all;
}
void store(Tensor out, const at::Tensor& result) {
  auto target = view(out);
  if (!target.defined() || !result.defined()) return;
  bool reshaped = target.numel() == result.numel() && target.sizes() != result.sizes();
  target.copy_(reshaped ? result.reshape(target.sizes()) : result);
}

static void note(TensorNotes& notes, Tensor tensor) {
  if (!tensor) return;
  std::string shape;
  for (auto dimension : tensor->size) shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
  notes.add(shape, type_name(tensor->type), format_name(tensor->format));
}
int plan(const char* name, aclOpExecutor** executor, std::function<void()> body, const Described& described) {
  auto* op = new aclOpExecutor;
  op->task.name = name;
  op->task.profiled = true;
  const auto& tensors = described.tensors;
  for (size_t k = 0; k + 1 < tensors.size(); k++) note(op->task.inputs, tensors[k]);
  if (!tensors.empty()) note(op->task.outputs, tensors.back());
  // The worker is no part of the program: no autograd, and no rows in the program's own profile.
  op->task.run = [body] {
    c10::InferenceMode inference;
    at::RecordFunctionGuard unrecorded(false);
    body();
  };
  *executor = op;
  return 0;
}
int launch(aclOpExecutor* executor, aclrtStream stream) {
  executor->task.launch_begin = now_ns();
  as_stream(stream)->push(std::move(executor->task));
  delete executor;
  return 0;
}
}  // namespace soft

using namespace soft;

SOFTNPU_API aclTensor* aclCreateTensor(const int64_t* size, uint64_t rank, aclDataType type, const int64_t* stride,
                                       int64_t offset, aclFormat format, const int64_t* storage, uint64_t storage_rank,
                                       void* data) {
  return new aclTensor{
      {size, size + rank}, {stride, stride + rank}, offset, type, format, {storage, storage + storage_rank}, data};
}
SOFTNPU_API aclScalar* aclCreateScalar(void* data, aclDataType type) {
  return new aclScalar{at::from_blob(data, {}, at::TensorOptions().dtype(scalar_type(type))).item(), type};
}
SOFTNPU_API aclIntArray* aclCreateIntArray(const int64_t* v, uint64_t n) { return new aclIntArray{{v, v + n}}; }
SOFTNPU_API aclFloatArray* aclCreateFloatArray(const float* v, uint64_t n) { return new aclFloatArray{{v, v + n}}; }
SOFTNPU_API aclBoolArray* aclCreateBoolArray(const bool* v, uint64_t n) { return new aclBoolArray{{v, v + n}}; }
SOFTNPU_API aclTensorList* aclCreateTensorList(const aclTensor* const* values, uint64_t count) {
  auto all = const_cast<aclTensor**>(values);
  return new aclTensorList{{all, all + count}};
}
SOFTNPU_API aclScalarList* aclCreateScalarList(const aclScalar* const* values, uint64_t count) {
  auto all = const_cast<aclScalar**>(values);
  return new aclScalarList{{all, all + count}};
}

// torch_npu releases descriptors right after the launch, while queued tasks still read them.
template <class Object>
static int release_later(const Object* object) {
  retire([object] { delete object; });
  return 0;
}
template <class List>
static int release_list_later(const List* list) {
  if (!list) return 0;
  retire([list] {
    for (auto* item : list->values) delete item;
    delete list;
  });
  return 0;
}
SOFTNPU_API int aclDestroyTensor(const aclTensor* tensor) { return release_later(tensor); }
SOFTNPU_API int aclDestroyScalar(const aclScalar* scalar) { return release_later(scalar); }
SOFTNPU_API int aclDestroyIntArray(const aclIntArray* array) { return release_later(array); }
SOFTNPU_API int aclDestroyFloatArray(const aclFloatArray* array) { return release_later(array); }
SOFTNPU_API int aclDestroyBoolArray(const aclBoolArray* array) { return release_later(array); }
SOFTNPU_API int aclDestroyTensorList(const aclTensorList* list) { return release_list_later(list); }
SOFTNPU_API int aclDestroyScalarList(const aclScalarList* list) { return release_list_later(list); }
SOFTNPU_API int aclDestroyAclOpExecutor(aclOpExecutor* executor) {
  delete executor;
  return 0;
}
// How torch_npu learns the size of a result that depends on data; the caller frees the array.
SOFTNPU_API int aclGetViewShape(const aclTensor* tensor, int64_t** size, uint64_t* rank) {
  *rank = tensor->size.size();
  *size = new int64_t[tensor->size.size() + 1];
  std::copy(tensor->size.begin(), tensor->size.end(), *size);
  return 0;
}
