// The runtime half of libascendcl: versions, devices, contexts and memory. Device memory is host memory.
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>

#include "device.h"

namespace soft {
namespace {
thread_local std::string t_error;
thread_local int t_last_error = 0;
thread_local int t_device = -1;

struct Block {
  size_t bytes;
  int device;
};

// Never destroyed: threads of torch_npu still call in while the process exits.
struct Memory {
  std::mutex mutex;
  std::map<void*, Block> device;
  std::map<void*, size_t> host;
  size_t used[kMaxDevices] = {};
};
Memory& memory() {
  static auto* state = new Memory;
  return *state;
}

std::string text_from_environment(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value && *value ? value : otherwise;
}
size_t device_bytes() {
  static const size_t bytes = static_cast<size_t>(number_from_environment("SOFTNPU_MEM_MB", 8192)) << 20;
  return bytes;
}
const char* cann_version() {
  static const auto* version = new std::string(text_from_environment("SOFTNPU_CANN_VERSION", "8.5.0"));
  return version->c_str();
}
aclError allocate(void** pointer, size_t bytes) {
  if (!pointer || !bytes) return set_error(ACL_ERROR_INVALID_PARAM, "aclrtMalloc: no bytes asked for");
  auto& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  size_t& used = m.used[current_device()];
  if (used + bytes > device_bytes()) return set_error(kMemoryExhausted, "soft-npu: device memory exhausted");
  void* block = nullptr;
  if (posix_memalign(&block, 512, bytes + 32)) return set_error(kMemoryExhausted, "soft-npu: host memory exhausted");
  m.device[block] = {bytes, current_device()};
  used += bytes;
  *pointer = block;
  return 0;
}
template <class Blocks, class Size>
bool inside(const Blocks& blocks, const void* pointer, Size size) {
  auto after = blocks.upper_bound(const_cast<void*>(pointer));
  if (after == blocks.begin()) return false;
  --after;
  return static_cast<const char*>(pointer) < static_cast<const char*>(after->first) + size(after->second);
}
}  // namespace

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
bool verbose() {
  static const bool on = getenv("SOFTNPU_VERBOSE") != nullptr;
  return on;
}
int set_error(int code, const std::string& message) {
  t_error = message;
  t_last_error = code;
  if (verbose()) fprintf(stderr, "[soft-npu] error %d: %s\n", code, message.c_str());
  return code;
}
long number_from_environment(const char* name, long otherwise) {
  const char* value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}
int device_count() {
  static const int count = [] {
    int all = std::min<int>(number_from_environment("SOFTNPU_DEVICES", 1), kMaxDevices);
    const char* visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (!visible || !*visible) return all;
    return std::min<int>(all, 1 + std::count(visible, visible + strlen(visible), ','));
  }();
  return count;
}
int current_device() { return t_device < 0 ? 0 : t_device; }
}  // namespace soft

using namespace soft;

// ---- versions and errors
SOFTNPU_API aclError aclInit(const char*) {
  static std::atomic<bool> done{false};
  return done.exchange(true) ? ACL_ERROR_REPEAT_INITIALIZE : 0;
}
SOFTNPU_API aclError aclFinalize() { return 0; }
SOFTNPU_API const char* aclGetRecentErrMsg() {
  static thread_local std::string message;
  message.swap(t_error);
  t_error.clear();
  return message.empty() ? nullptr : message.c_str();
}
SOFTNPU_API aclError aclrtGetLastError(aclrtLastErrLevel) {
  int error = t_last_error;
  t_last_error = 0;
  return error;
}
SOFTNPU_API aclError aclrtPeekAtLastError(aclrtLastErrLevel) { return t_last_error; }
SOFTNPU_API void aclAppLog(aclLogLevel level, const char* function, const char*, uint32_t, const char* format, ...) {
  if (!verbose() || level < ACL_WARNING) return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "[torch_npu %d] %s: ", level, function);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
}
SOFTNPU_API const char* aclrtGetSocName() {
  static const auto* name = new std::string(text_from_environment("SOFTNPU_SOC", "Ascend910B3"));
  return name->c_str();
}
SOFTNPU_API aclError aclGetCannAttribute(aclCannAttr attribute, int32_t* value) {
  *value = attribute == ACL_CANN_ATTR_JIT_COMPILE ? 0 : 1;
  return 0;
}
SOFTNPU_API aclError aclGetCannAttributeList(const aclCannAttr** list, size_t* count) {
  static const aclCannAttr known[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16, ACL_CANN_ATTR_JIT_COMPILE};
  *list = known;
  *count = 3;
  return 0;
}
SOFTNPU_API aclError aclsysGetCANNVersion(aclCANNPackageName, aclCANNPackageVersion* version) {
  memset(version, 0, sizeof *version);
  strncpy(version->version, cann_version(), sizeof version->version - 1);
  return 0;
}
SOFTNPU_API aclError aclsysGetVersionStr(char*, char* version) {
  strcpy(version, cann_version());
  return 0;
}

// ---- devices and contexts: a context is its device's number plus one
SOFTNPU_API aclError aclrtGetDeviceCount(uint32_t* count) {
  *count = device_count();
  return 0;
}
SOFTNPU_API aclError aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= device_count()) return set_error(ACL_ERROR_INVALID_DEVICE, "soft-npu: no such device");
  t_device = device;
  return 0;
}
SOFTNPU_API aclError aclrtGetDevice(int32_t* device) {
  if (t_device < 0) return kContextMissing;
  *device = t_device;
  return 0;
}
SOFTNPU_API aclError aclrtResetDevice(int32_t device) { return synchronize(device); }
SOFTNPU_API aclError aclrtSynchronizeDevice() { return synchronize(current_device()); }
SOFTNPU_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t) { return synchronize(current_device()); }
SOFTNPU_API aclError aclrtGetCurrentContext(aclrtContext* context) {
  if (t_device < 0) return kContextMissing;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(t_device) + 1);
  return 0;
}
SOFTNPU_API aclError aclrtSetCurrentContext(aclrtContext context) {
  t_device = static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1;
  return 0;
}
SOFTNPU_API aclError aclrtGetPrimaryCtxState(int32_t, uint32_t* flags, int32_t* active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return 0;
}
SOFTNPU_API aclError aclGetDeviceCapability(uint32_t, aclDeviceInfo info, int64_t* value) {
  constexpr int64_t kL2Bytes = 192ll << 20;
  *value = info == ACL_DEVICE_INFO_AI_CORE_NUM       ? kCubeCores
           : info == ACL_DEVICE_INFO_VECTOR_CORE_NUM ? kVectorCores
                                                     : kL2Bytes;
  return 0;
}
SOFTNPU_API aclError aclrtGetDeviceInfo(uint32_t, aclrtDevAttr, int64_t* value) {
  *value = kCubeCores;
  return 0;
}
static aclError cores(aclrtDevResLimitType type, uint32_t* value) {
  *value = static_cast<int>(type) == 0 ? kCubeCores : kVectorCores;
  return 0;
}
SOFTNPU_API aclError aclrtGetDeviceResLimit(int32_t, aclrtDevResLimitType t, uint32_t* v) { return cores(t, v); }
SOFTNPU_API aclError aclrtGetStreamResLimit(aclrtStream, aclrtDevResLimitType t, uint32_t* v) { return cores(t, v); }
SOFTNPU_API aclError aclrtGetResInCurrentThread(aclrtDevResLimitType t, uint32_t* v) { return cores(t, v); }
SOFTNPU_API aclError aclrtGetDeviceUtilizationRate(int32_t device, aclrtUtilizationInfo* info) {
  // The busy share since the previous call; since the library was loaded at the first one.
  static std::mutex mutex;
  static uint64_t loaded = now_ns(), seen_at[kMaxDevices] = {}, seen_busy[kMaxDevices] = {};
  std::lock_guard<std::mutex> lock(mutex);
  int d = device % kMaxDevices;
  uint64_t now = now_ns(), busy = busy_ns(d), since = seen_at[d] ? seen_at[d] : loaded;
  int32_t percent = now > since ? std::min<uint64_t>(100, 100 * (busy - seen_busy[d]) / (now - since)) : 0;
  seen_at[d] = now;
  seen_busy[d] = busy;
  info->cubeUtilization = info->vectorUtilization = percent;
  info->aicpuUtilization = 0;
  info->memoryUtilization = static_cast<int32_t>(100 * memory().used[d] / device_bytes());
  return 0;
}
SOFTNPU_API aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid* uuid) {
  memset(uuid, 0, sizeof *uuid);
  memcpy(uuid, "soft-npu", 8);
  reinterpret_cast<char*>(uuid)[15] = static_cast<char>(device);
  return 0;
}
SOFTNPU_API aclError aclrtDeviceGetBareTgid(int32_t* process) {
  *process = getpid();
  return 0;
}
SOFTNPU_API aclError aclrtGetLogicDevIdByUserDevId(const int32_t user, int32_t* const logic) {
  *logic = user;
  return 0;
}
SOFTNPU_API aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t, int32_t) {
  *can = 1;
  return 0;
}
SOFTNPU_API aclError aclrtDeviceEnablePeerAccess(int32_t, uint32_t) { return 0; }

// ---- settings: accepted, without effect
SOFTNPU_API aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode) { return 0; }
SOFTNPU_API aclError aclrtSetOpExecuteTimeOut(uint32_t) { return 0; }
SOFTNPU_API aclError aclrtSetOpExecuteTimeOutV2(uint64_t asked, uint64_t* given) {
  *given = asked;
  return 0;
}
SOFTNPU_API aclError aclrtSetOpWaitTimeout(uint32_t) { return 0; }
SOFTNPU_API aclError aclrtSetSysParamOpt(aclSysParamOpt, int64_t) { return 0; }
SOFTNPU_API aclError aclrtGetSysParamOpt(aclSysParamOpt, int64_t* value) {
  *value = 0;
  return 0;
}
SOFTNPU_API aclError aclrtCtxSetSysParamOpt(aclSysParamOpt, int64_t) { return 0; }
SOFTNPU_API aclError aclmdlInitDump() { return 0; }
SOFTNPU_API aclError aclmdlFinalizeDump() { return 0; }
SOFTNPU_API aclError aclmdlSetDump(const char*) { return 0; }

// ---- memory
SOFTNPU_API aclError aclrtMalloc(void** p, size_t bytes, aclrtMemMallocPolicy) { return allocate(p, bytes); }
SOFTNPU_API aclError aclrtMallocAlign32(void** p, size_t bytes, aclrtMemMallocPolicy) { return allocate(p, bytes); }
SOFTNPU_API aclError aclrtFree(void* pointer) {
  auto& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto block = m.device.find(pointer);
  if (block == m.device.end()) return set_error(ACL_ERROR_INVALID_PARAM, "aclrtFree: unknown pointer");
  m.used[block->second.device] -= block->second.bytes;
  m.device.erase(block);
  free(pointer);
  return 0;
}
SOFTNPU_API aclError aclrtMallocHost(void** pointer, size_t bytes) {
  if (posix_memalign(pointer, 64, bytes ? bytes : 1)) return kMemoryExhausted;
  std::lock_guard<std::mutex> lock(memory().mutex);
  memory().host[*pointer] = bytes;
  return 0;
}
SOFTNPU_API aclError aclrtFreeHost(void* pointer) {
  std::lock_guard<std::mutex> lock(memory().mutex);
  memory().host.erase(pointer);
  free(pointer);
  return 0;
}
SOFTNPU_API aclError aclrtGetMemInfo(aclrtMemAttr, size_t* unused, size_t* total) {
  *total = device_bytes();
  *unused = device_bytes() - memory().used[current_device()];
  return 0;
}
SOFTNPU_API aclError aclrtPointerGetAttributes(const void* pointer, aclrtPtrAttributes* attributes) {
  memset(attributes, 0, sizeof *attributes);
  auto& m = memory();
  std::lock_guard<std::mutex> lock(m.mutex);
  auto& type = attributes->location.type;
  if (inside(m.device, pointer, [](const Block& block) { return block.bytes; })) {
    type = ACL_MEM_LOCATION_TYPE_DEVICE;
  } else if (inside(m.host, pointer, [](size_t bytes) { return bytes; })) {
    type = ACL_MEM_LOCATION_TYPE_HOST;
  } else {
    type = ACL_MEM_LOCATION_TYPE_UNREGISTERED;
  }
  return 0;
}
SOFTNPU_API aclError aclrtMemcpy(void* to, size_t, const void* from, size_t bytes, aclrtMemcpyKind) {
  uint64_t begin = now_ns();
  memmove(to, from, bytes);
  record_call("aclrtMemcpy", begin, now_ns());
  return 0;
}
SOFTNPU_API aclError aclrtMemset(void* to, size_t, int32_t value, size_t bytes) {
  memset(to, value, bytes);
  return 0;
}
SOFTNPU_API aclError aclrtMemcpyAsync(void* to, size_t, const void* from, size_t bytes, aclrtMemcpyKind kind,
                                      aclrtStream stream) {
  Task task;
  task.profiled = true;
  task.run = [=] { memmove(to, from, bytes); };
  if (kind == ACL_MEMCPY_HOST_TO_DEVICE) {
    task.name = "MemcpyH2D";
    // Pageable memory is staged now: the caller may free it as soon as this returns.
    auto begin = static_cast<const char*>(from);
    auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    task.run = [=] { memcpy(to, staged->data(), bytes); };
  } else {
    task.name = kind == ACL_MEMCPY_DEVICE_TO_HOST ? "MemcpyD2H" : "MemcpyD2D";
  }
  as_stream(stream)->push(std::move(task));
  return 0;
}
SOFTNPU_API aclError aclrtMemsetAsync(void* to, size_t, int32_t value, size_t bytes, aclrtStream stream) {
  Task task;
  task.name = "Memset";
  task.profiled = true;
  task.run = [=] { memset(to, value, bytes); };
  as_stream(stream)->push(std::move(task));
  return 0;
}
