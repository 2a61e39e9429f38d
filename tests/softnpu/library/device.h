// Shared declarations of the software NPU: tasks, streams, faults and what the profiler records.
// Only headers that the installed wheels carry are included.
#pragma once
#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <acl/acl_prof.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// What the wheel may call; everything else stays inside the library.
#define SOFTNPU_API extern "C" __attribute__((visibility("default")))

namespace soft {

constexpr int kMaxDevices = 64;
constexpr aclError kAiCoreException = 507015;      // ACL_ERROR_RT_AICORE_EXCEPTION
constexpr aclError kMemoryExhausted = 207001;      // ACL_ERROR_RT_MEMORY_ALLOCATION
constexpr aclError kContextMissing = 107002;       // ACL_ERROR_RT_CONTEXT_NULL
constexpr int kCubeCores = 20, kVectorCores = 40;  // of an Ascend910B3

uint64_t now_ns();                                    // the host's clock, and the clock torch_npu's profiler uses: CLOCK_MONOTONIC_RAW
int set_error(int code, const std::string& message);  // kept for aclGetRecentErrMsg of this thread
bool verbose();
long number_from_environment(const char* name, long otherwise);
int device_count();
int current_device();

// The tensors of one side of a task as op_summary writes them: tensors apart by ';', dimensions by ','.
struct TensorNotes {
  std::string shapes, types, formats;
  void add(const std::string& shape, const std::string& type, const std::string& format);
};

struct Task {
  std::string name;           // aclnn call, collective or runtime call
  std::function<void()> run;  // copied by graph replay
  TensorNotes inputs, outputs;
  bool profiled = false;  // events and callbacks are not
  long thread = 0;        // host thread of the launch
  uint64_t launch_begin = 0, launch_end = 0;
  std::string details;    // of a collective: "group;ranks;rank;bytes", filled by its launch
  uint64_t delay_ns = 0;  // planted by SOFTNPU_DELAY_US
};

// A queue with a worker thread of its own, so that launches really are asynchronous.
struct Stream {
  int id = 0, device = 0;
  std::vector<Task>* capture = nullptr;  // set while a graph records this stream

  void push(Task task);
  int wait();  // 0, or the error of the first task that failed
  bool idle();
  void stop();
  void start();

 private:
  void loop();
  void execute(Task& task);
  void finish(Task& task);

  std::deque<Task> queue_;
  std::mutex mutex_, running_;
  std::condition_variable arrived_, done_;
  uint64_t pushed_ = 0, finished_ = 0;
  bool stopping_ = false;
  uint64_t ended_ns_ = 0;  // the device's time at the end of the last task
  std::string failure_;
  std::thread worker_;
};

Stream* as_stream(aclrtStream stream);  // nullptr means the default stream of the current device
int synchronize(int device);
uint64_t busy_ns(int device);

// Calls `release` once no queued task can still read what it frees; hold() keeps the door shut for captured graphs.
void retire(std::function<void()> release);
void hold(int change);

// SOFTNPU_DELAY_US and SOFTNPU_FAIL, read anew at every launch.
uint64_t planted_delay_ns(const std::string& name);
bool planted_failure(const std::string& name);

// The device's time at which the task that runs on this thread began, and how long it has waited for other ranks or streams.
uint64_t& began_ns();
uint64_t& waited_ns();
void record(const Stream& stream, const Task& task, uint64_t begin, uint64_t end);
// A call that works on the host alone and has no task.
void record_call(const char* name, uint64_t begin, uint64_t end);
const char* format_name(aclFormat format);
}  // namespace soft
