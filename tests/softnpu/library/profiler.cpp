// The aclprof* half: between start and stop every device task is recorded; stop writes a PROF_* folder whose raw file
// the msprof stand-in exports.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

struct aclprofConfig {
  uint64_t types;
  int metrics;
};
struct aclprofStepInfo {};

namespace soft {
namespace {
struct Record {
  std::string name, details;
  TensorNotes inputs, outputs;
  int stream, device;
  long thread;
  uint64_t launch_begin, launch_end, begin, end;
};
struct Recorder {
  std::atomic<bool> on{false};
  std::mutex mutex;
  std::vector<Record> records;
  std::string folder;
  uint64_t began_ns = 0, began_wall_us = 0;
  aclprofConfig config = {};
  int sessions = 0;
};
Recorder& recorder() {
  static auto* state = new Recorder;
  return *state;
}
uint64_t wall_us() {
  timeval t;
  gettimeofday(&t, nullptr);
  return t.tv_sec * 1000000ull + t.tv_usec;
}
void write(const std::string& path, const std::string& text) {
  FILE* file = fopen(path.c_str(), "w");
  if (!file) return;
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}
std::string session_folder() {
  auto& r = recorder();
  time_t seconds = r.began_wall_us / 1000000;
  tm local;
  localtime_r(&seconds, &local);
  char stamp[32], name[96];
  strftime(stamp, sizeof stamp, "%Y%m%d%H%M%S", &local);
  int milliseconds = r.began_wall_us / 1000 % 1000;
  snprintf(name, sizeof name, "/PROF_%06d_%s%03d_SOFTNPU", ++r.sessions, stamp, milliseconds);
  return r.folder + name;
}
std::string row(const Record& r) {
  std::string text = r.name;
  for (uint64_t number : {uint64_t(r.stream), uint64_t(r.thread), r.launch_begin, r.launch_end, r.begin, r.end}) {
    text += "\t" + std::to_string(number);
  }
  for (const auto* notes : {&r.inputs, &r.outputs}) {
    text += "\t" + notes->shapes + "\t" + notes->types + "\t" + notes->formats;
  }
  return text + "\t" + r.details + "\n";
}
void write_session() {
  auto& r = recorder();
  std::vector<Record> records;
  {
    std::lock_guard<std::mutex> lock(r.mutex);
    records.swap(r.records);
  }
  std::string folder = session_folder();
  for (auto* part : {"", "/host", "/host/data"}) mkdir((folder + part).c_str(), 0750);
  write(folder + "/host/start_info", "{\"collectionTimeBegin\": \"" + std::to_string(r.began_wall_us) +
                                         "\", \"collectionTimeEnd\": \"" + std::to_string(wall_us()) +
                                         "\", \"clockMonotonicRaw\": \"" + std::to_string(r.began_ns) + "\"}");
  write(
      folder + "/host/info.json",
      "{\"CPU\": [{\"Id\": 0, \"Name\": \"soft-npu\", \"Frequency\": \"1000.000000\"}], \"platform_version\": \"5\"}");
  std::map<int, std::string> rows{{current_device(), ""}};
  for (const auto& record : records) rows[record.device] += row(record);
  for (const auto& [device, text] : rows) {
    std::string id = std::to_string(device), of_device = folder + "/device_" + id;
    mkdir(of_device.c_str(), 0750);
    mkdir((of_device + "/data").c_str(), 0750);
    write(of_device + "/info.json." + id, "{\"DeviceInfo\": [{\"id\": " + id +
                                              ", \"aiv_num\": " + std::to_string(kVectorCores) +
                                              ", \"ai_core_num\": " + std::to_string(kCubeCores) +
                                              ", \"aic_frequency\": \"1800\"}], \"platform_version\": \"5\"}");
    write(of_device + "/data/softnpu.tsv", "#configuration\t" + std::to_string(r.config.types) + "\t" +
                                               std::to_string(r.config.metrics) + "\t" + std::to_string(getpid()) +
                                               "\n" + text);
  }
}
}  // namespace

void record(const Stream& stream, const Task& task, uint64_t begin, uint64_t end) {
  auto& r = recorder();
  if (!r.on.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(r.mutex);
  r.records.push_back({task.name, task.details, task.inputs, task.outputs, stream.id, stream.device, task.thread,
                       task.launch_begin, task.launch_end, begin, end});
}
void record_call(const char* name, uint64_t begin, uint64_t end) {
  auto& r = recorder();
  if (!r.on.load(std::memory_order_relaxed)) return;
  std::lock_guard<std::mutex> lock(r.mutex);
  r.records.push_back({name, "", {}, {}, 0, current_device(), syscall(SYS_gettid), begin, end, begin, end});
}
}  // namespace soft

using namespace soft;

SOFTNPU_API aclError aclprofInit(const char* path, size_t length) {
  recorder().folder.assign(path, length);
  return 0;
}
SOFTNPU_API aclError aclprofFinalize() {
  recorder().on = false;
  return 0;
}
SOFTNPU_API aclprofConfig* aclprofCreateConfig(uint32_t*, uint32_t, aclprofAicoreMetrics metrics,
                                               const aclprofAicoreEvents*, uint64_t types) {
  return new aclprofConfig{types, static_cast<int>(metrics)};
}
SOFTNPU_API aclError aclprofDestroyConfig(const aclprofConfig* config) {
  delete config;
  return 0;
}
SOFTNPU_API aclError aclprofStart(const aclprofConfig* config) {
  auto& r = recorder();
  r.config = *config;
  r.began_ns = now_ns();
  r.began_wall_us = wall_us();
  r.on = true;
  return 0;
}
SOFTNPU_API aclError aclprofStop(const aclprofConfig*) {
  aclrtSynchronizeDevice();
  recorder().on = false;
  write_session();
  return 0;
}
SOFTNPU_API aclError aclprofWarmup(const aclprofConfig*) { return 0; }
SOFTNPU_API aclError aclprofSetConfig(aclprofConfigType, const char*, size_t) { return 0; }
SOFTNPU_API aclError aclprofMarkEx(const char*, size_t, aclrtStream) { return 0; }
SOFTNPU_API aclError aclprofRegisterDeviceCallback() { return 0; }
SOFTNPU_API aclError aclprofGetSupportedFeatures(size_t* bytes, void** features) {
  *bytes = 0;
  *features = nullptr;
  return 0;
}
SOFTNPU_API aclprofStepInfo* aclprofCreateStepInfo() { return new aclprofStepInfo; }
SOFTNPU_API void aclprofDestroyStepInfo(aclprofStepInfo* step) { delete step; }
SOFTNPU_API aclError aclprofGetStepTimestamp(aclprofStepInfo*, aclprofStepTag, aclrtStream) { return 0; }

// ---- libprofapi entry points that the wheel imports
SOFTNPU_API uint64_t MsprofGetHashId(const char* text, size_t length) {
  return std::hash<std::string>{}(std::string(text, length));
}
SOFTNPU_API uint64_t MsprofSysCycleTime() { return now_ns(); }
SOFTNPU_API int32_t MsprofReportApi(uint32_t, const void*) { return 0; }
SOFTNPU_API int32_t MsprofReportCompactInfo(uint32_t, const void*, uint32_t) { return 0; }
SOFTNPU_API int32_t MsprofReportAdditionalInfo(uint32_t, const void*, uint32_t) { return 0; }
SOFTNPU_API int32_t MsprofRegisterCallback(uint32_t, void*) { return 0; }
