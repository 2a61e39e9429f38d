// The older single-operator interface (aclop*): what torch_npu still asks of it works, the rest is refused by name.
#include <algorithm>

#include "operators.h"

using namespace soft;

struct aclTensorDesc {
  aclDataType type;
  std::vector<int64_t> shape;
  aclFormat format;
  std::string name;
  std::vector<int64_t> storage_shape;
  aclFormat storage_format;
};
struct aclDataBuffer {
  void* data;
  size_t bytes;
};
struct aclopAttr {};

// ---- descriptors
SOFTNPU_API aclTensorDesc* aclCreateTensorDesc(aclDataType type, int rank, const int64_t* shape, aclFormat format) {
  std::vector<int64_t> dimensions(shape, shape + std::max(rank, 0));
  return new aclTensorDesc{type, dimensions, format, "", dimensions, format};
}
SOFTNPU_API void aclDestroyTensorDesc(const aclTensorDesc* tensor) { delete tensor; }
SOFTNPU_API size_t aclGetTensorDescNumDims(const aclTensorDesc* tensor) { return tensor->shape.size(); }
SOFTNPU_API aclDataType aclGetTensorDescType(const aclTensorDesc* tensor) { return tensor->type; }
SOFTNPU_API aclFormat aclGetTensorDescFormat(const aclTensorDesc* tensor) { return tensor->format; }
SOFTNPU_API aclError aclGetTensorDescDimV2(const aclTensorDesc* tensor, size_t dimension, int64_t* size) {
  *size = tensor->shape[dimension];
  return 0;
}
SOFTNPU_API void aclSetTensorDescName(aclTensorDesc* tensor, const char* name) { tensor->name = name; }
SOFTNPU_API aclError aclSetTensorFormat(aclTensorDesc* tensor, aclFormat format) {
  tensor->storage_format = format;
  return 0;
}
SOFTNPU_API aclError aclSetTensorShape(aclTensorDesc* tensor, int rank, const int64_t* shape) {
  tensor->storage_shape.assign(shape, shape + std::max(rank, 0));
  return 0;
}
SOFTNPU_API aclError aclSetTensorPlaceMent(aclTensorDesc*, aclMemType) { return 0; }
SOFTNPU_API aclDataBuffer* aclCreateDataBuffer(void* data, size_t bytes) { return new aclDataBuffer{data, bytes}; }
SOFTNPU_API aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
  delete buffer;
  return 0;
}

// ---- attributes and options: accepted, without effect
SOFTNPU_API aclopAttr* aclopCreateAttr() { return new aclopAttr; }
SOFTNPU_API void aclopDestroyAttr(const aclopAttr* attributes) { delete attributes; }
#define ATTRIBUTE(NAME, ...) \
  SOFTNPU_API aclError aclopSetAttr##NAME(aclopAttr*, const char*, __VA_ARGS__) { return 0; }
ATTRIBUTE(Bool, uint8_t)
ATTRIBUTE(Int, int64_t)
ATTRIBUTE(Float, float)
ATTRIBUTE(String, const char*)
ATTRIBUTE(DataType, aclDataType)
ATTRIBUTE(ListBool, int, const uint8_t*)
ATTRIBUTE(ListInt, int, const int64_t*)
ATTRIBUTE(ListFloat, int, const float*)
ATTRIBUTE(ListListInt, int, const int*, const int64_t* const*)
SOFTNPU_API aclError aclSetCompileopt(aclCompileOpt, const char*) { return 0; }
SOFTNPU_API size_t aclGetCompileoptSize(aclCompileOpt) { return 32; }
SOFTNPU_API aclError aclGetCompileopt(aclCompileOpt, char* value, size_t bytes) {
  strncpy(value, "disable", bytes);
  return 0;
}

// ---- execution
static void note(TensorNotes& notes, const aclTensorDesc* tensor) {
  std::string shape;
  for (auto size : tensor->storage_shape) shape += (shape.empty() ? "" : ",") + std::to_string(size);
  notes.add(shape, type_name(tensor->type), format_name(tensor->storage_format));
}
// A cast between formats is what CANN calls TransData and names itself, because the program asked only for a copy.
static std::string copy_name(const std::string& name, const aclTensorDesc* from, const aclTensorDesc* to) {
  static std::atomic<int> inserted{0};
  if (from->storage_format == to->storage_format && name != "TransData") return name;
  return "trans_TransData_" + std::to_string(inserted++);
}
template <class Descs, class Buffers, class OutDescs, class OutBuffers>
static aclError execute(const std::string& name, int inputs, Descs in, Buffers in_data, int outputs, OutDescs out,
                        OutBuffers out_data, aclrtStream stream) {
  if (!inputs || !outputs) return set_error(ACL_ERROR_OP_NOT_FOUND, "soft-npu: aclop " + name + " is not built");
  Task task;
  task.profiled = true;
  for (int k = 0; k < inputs; k++) note(task.inputs, in[k]);
  note(task.outputs, out[0]);
  char* target = static_cast<char*>(out_data[0]->data);
  size_t bytes = out_data[0]->bytes;
  if (name == "Identity" || name == "TransData") {
    // The bytes stay as they are: a private format is only a label here.
    task.name = copy_name(name, in[0], out[0]);
    task.run = [=, source = in_data[0]->data, n = std::min(bytes, in_data[0]->bytes)] { memmove(target, source, n); };
  } else if (name == "Fill" && inputs > 1 && in_data[1]->bytes) {
    task.name = name;
    std::string item(static_cast<const char*>(in_data[1]->data), in_data[1]->bytes);
    task.run = [=] {
      for (size_t at = 0; at + item.size() <= bytes; at += item.size()) memcpy(target + at, item.data(), item.size());
    };
  } else {
    return set_error(ACL_ERROR_OP_NOT_FOUND, "soft-npu: aclop " + name + " is not built");
  }
  as_stream(stream)->push(std::move(task));
  return 0;
}
SOFTNPU_API aclError aclopCompileAndExecuteV2(const char* name, int inputs, aclTensorDesc** in, aclDataBuffer** in_data,
                                              int outputs, aclTensorDesc** out, aclDataBuffer** out_data, aclopAttr*,
                                              aclopEngineType, aclopCompileType, const char*, aclrtStream stream) {
  return execute(name, inputs, in, in_data, outputs, out, out_data, stream);
}
SOFTNPU_API aclError aclopCompileAndExecute(const char* name, int inputs, const aclTensorDesc* const* in,
                                            const aclDataBuffer* const* in_data, int outputs,
                                            const aclTensorDesc* const* out, aclDataBuffer* const* out_data,
                                            const aclopAttr*, aclopEngineType, aclopCompileType, const char*,
                                            aclrtStream stream) {
  return execute(name, inputs, in, in_data, outputs, out, out_data, stream);
}
