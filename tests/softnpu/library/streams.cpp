// Streams, events and captured graphs: each stream is a queue with a worker thread, so launches are asynchronous.
// A busy host takes CPUs from these threads, which a device would not notice. So a device has its own time: a task begins when
// it was launched or the task before it ended, and takes as long as it computed, waited for other ranks and was delayed.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "device.h"

namespace soft {
namespace {
// Never destroyed: worker threads outlive the static objects of the process.
struct Queues {
  std::mutex mutex;
  std::vector<Stream*> streams;
  Stream* standard[kMaxDevices] = {};
  std::atomic<int> next_id{0};
  std::atomic<uint64_t> busy[kMaxDevices] = {};
  std::atomic<bool> stop_on_failure{true};
  // Descriptors that queued tasks may still read are released when nothing is in flight.
  std::atomic<long> in_flight{0};
  std::mutex release_mutex;
  std::vector<std::function<void()>> releases;
};
Queues& queues() {
  static auto* state = new Queues;
  return *state;
}
Stream* make_stream(int device) {
  auto* stream = new Stream;
  stream->device = device;
  stream->id = queues().next_id++;
  stream->start();
  std::lock_guard<std::mutex> lock(queues().mutex);
  queues().streams.push_back(stream);
  return stream;
}
void release_if_idle() {
  std::vector<std::function<void()>> ready;
  {
    std::lock_guard<std::mutex> lock(queues().release_mutex);
    if (queues().in_flight.load() != 0) return;
    ready.swap(queues().releases);
  }
  for (auto& release : ready) release();
}
// SOFTNPU_SYNCHRONOUS: each task runs on the thread that launches it. No thread has to be woken, which is steadier.
bool synchronous() {
  static const bool on = getenv("SOFTNPU_SYNCHRONOUS") != nullptr;
  return on;
}
// SOFTNPU_EXACT: a task with a planted delay has exactly that duration in a recording, however busy the host is.
bool exact() {
  static const bool on = getenv("SOFTNPU_EXACT") != nullptr;
  return on;
}
uint64_t computed_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
void enqueue(aclrtStream stream, const char* name, std::function<void()> run) {
  Task task;
  task.name = name;
  task.run = std::move(run);
  as_stream(stream)->push(std::move(task));
}
}  // namespace

void retire(std::function<void()> release) {
  {
    std::lock_guard<std::mutex> lock(queues().release_mutex);
    if (queues().in_flight.load() != 0) {
      queues().releases.push_back(std::move(release));
      return;
    }
  }
  release();
}
void hold(int change) {
  if ((queues().in_flight += change) == 0) release_if_idle();
}
uint64_t& began_ns() {
  static thread_local uint64_t began = 0;
  return began;
}
uint64_t& waited_ns() {
  static thread_local uint64_t waited = 0;
  return waited;
}
uint64_t busy_ns(int device) { return queues().busy[device % kMaxDevices].load(); }

void Stream::start() {
  worker_ = std::thread([this] { loop(); });
}
void Stream::push(Task task) {
  static thread_local const long thread = syscall(SYS_gettid);
  task.thread = thread;
  task.launch_end = now_ns();
  if (!task.launch_begin) task.launch_begin = task.launch_end;
  if (capture) {
    capture->push_back(std::move(task));
    return;
  }
  if (task.profiled) {
    task.delay_ns = planted_delay_ns(task.name);
    if (planted_failure(task.name)) {
      task.run = [] { throw std::runtime_error("fftsplus aivector error, planted by SOFTNPU_FAIL"); };
    }
  }
  queues().in_flight++;
  if (synchronous()) {
    std::lock_guard<std::mutex> turn(running_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      pushed_++;
    }
    finish(task);
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  pushed_++;
  queue_.push_back(std::move(task));
  arrived_.notify_one();
}
int Stream::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t until = pushed_;
  done_.wait(lock, [&] { return finished_ >= until; });
  if (failure_.empty()) return 0;
  std::string failure = failure_;
  if (!queues().stop_on_failure) failure_.clear();
  return set_error(kAiCoreException, failure);
}
bool Stream::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return finished_ >= pushed_;
}
void Stream::stop() {
  wait();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
}
void Stream::loop() {
  for (;;) {
    Task task;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    finish(task);
  }
}
void Stream::finish(Task& task) {
  bool failed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failed = !failure_.empty();
  }
  // A failed stream runs no more kernels, as with ACL_STOP_ON_FAILURE; events go on, or waiters would hang.
  if (!failed || !task.profiled) execute(task);
  task.run = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    finished_++;
    done_.notify_all();
  }
  if (--queues().in_flight == 0) release_if_idle();
}
void Stream::execute(Task& task) {
  uint64_t begin = began_ns() = std::max(ended_ns_, task.launch_end);
  uint64_t host_began = now_ns(), computed_before = computed_ns();
  uint64_t computed = 0;
  waited_ns() = 0;
  try {
    task.run();
    computed = computed_ns() - computed_before;
    // Spinning, not sleeping: a delay of microseconds would drown in the scheduler's.
    if (task.delay_ns) {
      for (uint64_t until = now_ns() + task.delay_ns; now_ns() < until;) {
      }
    }
  } catch (const std::exception& error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = task.name + ": " + error.what();
    if (verbose()) fprintf(stderr, "[soft-npu] %s failed: %s\n", task.name.c_str(), error.what());
  }
  // Waiting polls, so it computes a little.
  uint64_t took = std::min(computed + waited_ns() + task.delay_ns, now_ns() - host_began);
  if (task.delay_ns && exact()) took = task.delay_ns;
  uint64_t end = ended_ns_ = begin + took;
  if (!task.profiled) return;
  queues().busy[device % kMaxDevices] += end - begin;
  if (!task.details.empty()) task.details += ";" + std::to_string(waited_ns());
  record(*this, task, begin, end);
}

Stream* as_stream(aclrtStream stream) {
  if (stream) return static_cast<Stream*>(stream);
  static auto* mutex = new std::mutex;
  std::lock_guard<std::mutex> lock(*mutex);
  Stream*& standard = queues().standard[current_device()];
  if (!standard) standard = make_stream(current_device());
  return standard;
}
int synchronize(int device) {
  std::vector<Stream*> streams;
  {
    std::lock_guard<std::mutex> lock(queues().mutex);
    streams = queues().streams;
  }
  int result = 0;
  for (auto* stream : streams) {
    if (stream->device != device) continue;
    if (int error = stream->wait()) result = error;
  }
  return result;
}
}  // namespace soft

using namespace soft;

// ---- streams
SOFTNPU_API aclError aclrtCreateStream(aclrtStream* stream) {
  *stream = make_stream(current_device());
  return 0;
}
SOFTNPU_API aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t) {
  return aclrtCreateStream(stream);
}
SOFTNPU_API aclError aclrtDestroyStream(aclrtStream handle) {
  auto* stream = static_cast<Stream*>(handle);
  if (!stream) return 0;
  stream->stop();
  std::lock_guard<std::mutex> lock(queues().mutex);
  auto& all = queues().streams;
  all.erase(std::remove(all.begin(), all.end(), stream), all.end());
  return 0;  // the object stays: late queries must find it
}
SOFTNPU_API aclError aclrtDestroyStreamForce(aclrtStream stream) { return aclrtDestroyStream(stream); }
SOFTNPU_API aclError aclrtSynchronizeStream(aclrtStream stream) { return as_stream(stream)->wait(); }
SOFTNPU_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream s, int32_t) { return as_stream(s)->wait(); }
SOFTNPU_API aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  *status = as_stream(stream)->idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return 0;
}
SOFTNPU_API aclError aclrtStreamGetId(aclrtStream stream, int32_t* id) {
  *id = as_stream(stream)->id;
  return 0;
}
SOFTNPU_API aclError aclrtSetStreamFailureMode(aclrtStream, uint64_t mode) {
  queues().stop_on_failure = mode == ACL_STOP_ON_FAILURE;
  return 0;
}
SOFTNPU_API aclError aclrtSetStreamOverflowSwitch(aclrtStream, uint32_t) { return 0; }
SOFTNPU_API aclError aclrtGetStreamOverflowSwitch(aclrtStream, uint32_t* on) {
  *on = 0;
  return 0;
}
SOFTNPU_API aclError aclrtSetStreamAttribute(aclrtStream, aclrtStreamAttr, aclrtStreamAttrValue*) { return 0; }
SOFTNPU_API aclError aclrtLaunchHostFunc(aclrtStream stream, aclrtHostFunc function, void* argument) {
  enqueue(stream, "HostFunc", [=] { function(argument); });
  return 0;
}
SOFTNPU_API aclError aclrtLaunchCallback(aclrtCallback function, void* data, aclrtCallbackBlockType, aclrtStream s) {
  enqueue(s, "Callback", [=] { function(data); });
  return 0;
}
SOFTNPU_API aclError aclrtSubscribeReport(uint64_t, aclrtStream) { return 0; }
SOFTNPU_API aclError aclrtUnSubscribeReport(uint64_t, aclrtStream) { return 0; }
SOFTNPU_API aclError aclrtProcessReport(int32_t) {
  usleep(1000);
  return 0;
}

// ---- events
namespace {
struct Event {
  std::mutex mutex;
  std::condition_variable reached;
  uint64_t recorded = 0, done = 0, timestamp_ns = 0;
};
Event* as_event(aclrtEvent event) { return static_cast<Event*>(event); }
}  // namespace
SOFTNPU_API aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t) {
  *event = new Event;
  return 0;
}
SOFTNPU_API aclError aclrtCreateEventExWithFlag(aclrtEvent* e, uint32_t flag) {
  return aclrtCreateEventWithFlag(e, flag);
}
SOFTNPU_API aclError aclrtDestroyEvent(aclrtEvent event) {
  retire([event] { delete as_event(event); });
  return 0;
}
SOFTNPU_API aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream) {
  auto* event = as_event(handle);
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    number = ++event->recorded;
  }
  enqueue(stream, "EventRecord", [=] {
    std::lock_guard<std::mutex> lock(event->mutex);
    event->done = number;
    event->timestamp_ns = began_ns();
    event->reached.notify_all();
  });
  return 0;
}
SOFTNPU_API aclError aclrtResetEvent(aclrtEvent, aclrtStream) { return 0; }
SOFTNPU_API aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent handle) {
  auto* event = as_event(handle);
  uint64_t number;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    number = event->recorded;
  }
  enqueue(stream, "EventWait", [=] {
    std::unique_lock<std::mutex> lock(event->mutex);
    event->reached.wait(lock, [&] { return event->done >= number; });
    if (event->timestamp_ns > began_ns()) waited_ns() = event->timestamp_ns - began_ns();
  });
  return 0;
}
SOFTNPU_API aclError aclrtSynchronizeEvent(aclrtEvent handle) {
  auto* event = as_event(handle);
  std::unique_lock<std::mutex> lock(event->mutex);
  event->reached.wait(lock, [&] { return event->done >= event->recorded; });
  return 0;
}
SOFTNPU_API aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  auto* event = as_event(handle);
  std::lock_guard<std::mutex> lock(event->mutex);
  bool complete = event->done >= event->recorded;
  *status = complete ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return 0;
}
SOFTNPU_API aclError aclrtQueryEventWaitStatus(aclrtEvent, aclrtEventWaitStatus* status) {
  *status = ACL_EVENT_WAIT_STATUS_COMPLETE;
  return 0;
}
SOFTNPU_API aclError aclrtEventElapsedTime(float* ms, aclrtEvent begin, aclrtEvent end) {
  auto ns = static_cast<int64_t>(as_event(end)->timestamp_ns - as_event(begin)->timestamp_ns);
  *ms = static_cast<float>(static_cast<double>(ns) / 1e6);
  return 0;
}
SOFTNPU_API aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* us) {
  *us = as_event(event)->timestamp_ns / 1000;
  return 0;
}

// ---- graphs (NPUGraph): a capture keeps the tasks, a replay pushes copies of them
namespace {
struct Graph {
  std::vector<Task> tasks;
  uint32_t id;
  Stream* origin;
};
struct Captures {
  std::mutex mutex;
  std::map<Stream*, Graph*> active;
  uint32_t next_id = 1;
};
Captures& captures() {
  static auto* state = new Captures;
  return *state;
}
Graph* as_graph(aclmdlRI graph) { return static_cast<Graph*>(graph); }
thread_local aclmdlRICaptureMode t_mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
}  // namespace
SOFTNPU_API aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode) {
  auto* stream = as_stream(handle);
  stream->wait();
  hold(1);  // the captured tasks read their descriptors until the graph is destroyed
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto* graph = new Graph{{}, captures().next_id++, stream};
  stream->capture = &graph->tasks;
  captures().active[stream] = graph;
  return 0;
}
SOFTNPU_API aclError aclmdlRICaptureGetInfo(aclrtStream stream, aclmdlRICaptureStatus* status, aclmdlRI* graph) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto found = captures().active.find(static_cast<Stream*>(stream));
  bool active = found != captures().active.end();
  *status = active ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
  if (graph) *graph = active ? static_cast<aclmdlRI>(found->second) : nullptr;
  return 0;
}
SOFTNPU_API aclError aclmdlRICaptureEnd(aclrtStream stream, aclmdlRI* graph) {
  std::lock_guard<std::mutex> lock(captures().mutex);
  auto found = captures().active.find(static_cast<Stream*>(stream));
  if (found == captures().active.end()) return set_error(ACL_ERROR_INVALID_PARAM, "soft-npu: no capture to end");
  found->first->capture = nullptr;
  *graph = static_cast<aclmdlRI>(found->second);
  captures().active.erase(found);
  return 0;
}
SOFTNPU_API aclError aclmdlRIExecuteAsync(aclmdlRI graph, aclrtStream stream) {
  for (auto task : as_graph(graph)->tasks) {
    task.launch_begin = 0;
    as_stream(stream)->push(std::move(task));
  }
  return 0;
}
SOFTNPU_API aclError aclmdlRIDestroy(aclmdlRI graph) {
  synchronize(as_graph(graph)->origin->device);
  delete as_graph(graph);
  hold(-1);
  return 0;
}
SOFTNPU_API aclError aclmdlRIGetId(aclmdlRI graph, uint32_t* id) {
  *id = as_graph(graph)->id;
  return 0;
}
SOFTNPU_API aclError aclmdlRIDebugPrint(aclmdlRI) { return 0; }
SOFTNPU_API aclError aclmdlRIDebugJsonPrint(aclmdlRI, const char*, uint32_t) { return 0; }
SOFTNPU_API aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  std::swap(*mode, t_mode);
  return 0;
}
