// libhccl: ranks on one machine exchange bytes through files in /dev/shm. A wait is bounded, and ends early when the
// awaited rank is gone.
#include <dirent.h>
#include <hccl/hccl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "operators.h"

using namespace soft;
namespace fs = std::filesystem;

namespace {
constexpr const char* kPrefix = "softhccl_";

struct Communicator {
  std::string id;
  uint32_t ranks, rank;
  std::atomic<uint64_t> collectives{0};
  std::mutex mutex;
  std::map<uint32_t, uint64_t> sent, received;  // messages per peer
  std::atomic<int> error{HCCL_SUCCESS};

  fs::path folder() const { return fs::path("/dev/shm") / (kPrefix + id); }
  fs::path process_of(uint32_t r) const { return folder() / ("rank_" + std::to_string(r) + ".pid"); }
  fs::path part(uint64_t number, uint32_t r) const {
    return folder() / ("collective_" + std::to_string(number) + "_" + std::to_string(r));
  }
  fs::path message(uint32_t from, uint32_t to, uint64_t number) const {
    return folder() / ("message_" + std::to_string(from) + "_" + std::to_string(to) + "_" + std::to_string(number));
  }
};
Communicator* as_communicator(HcclComm handle) { return static_cast<Communicator*>(handle); }

// ---- files as mailboxes
bool read_file(const fs::path& path, std::string& bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::ostringstream content;
  content << file.rdbuf();
  bytes = content.str();
  return true;
}
void publish(const fs::path& path, const std::string& bytes) {
  // Renamed when complete, so that a reader never sees half of it.
  fs::path unfinished = path.string() + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("soft-npu hccl: cannot write " + unfinished.string());
  fs::rename(unfinished, path);
}
bool alive(const fs::path& pid_file) {
  std::string text;
  if (!read_file(pid_file, text)) return false;
  if (kill(atoi(text.c_str()), 0) != 0) return false;
  std::string status;  // "pid (name) state ..."; a zombie still has a number
  if (!read_file("/proc/" + text + "/stat", status)) return false;
  size_t name_end = status.rfind(')');
  return name_end == status.npos || status.compare(name_end + 2, 1, "Z") != 0;
}
bool has_died(const Communicator& c, uint32_t rank) {
  return fs::exists(c.process_of(rank)) && !alive(c.process_of(rank));
}
uint64_t patience_ns() {
  static const long seconds =
      number_from_environment("SOFTNPU_HCCL_TIMEOUT_S", number_from_environment("HCCL_CONNECT_TIMEOUT", 120));
  return static_cast<uint64_t>(seconds) * 1000000000ull;
}
std::string await(Communicator& c, const fs::path& path, uint32_t from) {
  std::string bytes;
  uint64_t begin = now_ns(), until = begin + patience_ns();
  for (unsigned looks = 0; !read_file(path, bytes); looks++) {
    // Once more after the look at the process: it may have written and ended in between.
    bool dead = looks % 64 == 63 && has_died(c, from) && !fs::exists(path);
    if (dead || now_ns() > until) {
      c.error = dead ? HCCL_E_REMOTE : HCCL_E_TIMEOUT;
      throw std::runtime_error("soft-npu hccl: rank " + std::to_string(from) +
                               (dead ? " has died" : " did not arrive"));
    }
    usleep(looks < 200 ? 50 : 1000);
  }
  waited_ns() += now_ns() - begin;
  return bytes;
}
// Publishes the bytes of this rank and returns those of every rank.
std::vector<std::string> exchange(Communicator& c, uint64_t number, const std::string& bytes) {
  publish(c.part(number, c.rank), bytes);
  std::vector<std::string> all(c.ranks);
  for (uint32_t r = 0; r < c.ranks; r++) all[r] = r == c.rank ? bytes : await(c, c.part(number, r), r);
  // Who has published number N has read all of N - 1.
  if (number >= 1) fs::remove(c.part(number - 1, c.rank));
  return all;
}
// Removes what earlier jobs left behind whose processes were killed.
void sweep() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/dev/shm", ignored)) {
    if (entry.path().filename().string().rfind(kPrefix, 0) != 0) continue;
    struct stat status;
    if (stat(entry.path().c_str(), &status) != 0 || time(nullptr) - status.st_mtime < 60) continue;
    bool used = false;
    for (const auto& file : fs::directory_iterator(entry.path(), ignored)) {
      used |= file.path().extension() == ".pid" && alive(file.path());
    }
    if (!used) fs::remove_all(entry.path(), ignored);
  }
}

// ---- buffers
at::ScalarType scalar_type(HcclDataType type) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8: return at::kChar;
    case HCCL_DATA_TYPE_INT16: return at::kShort;
    case HCCL_DATA_TYPE_INT32: return at::kInt;
    case HCCL_DATA_TYPE_INT64: return at::kLong;
    case HCCL_DATA_TYPE_UINT8: return at::kByte;
    case HCCL_DATA_TYPE_FP16: return at::kHalf;
    case HCCL_DATA_TYPE_FP32: return at::kFloat;
    case HCCL_DATA_TYPE_FP64: return at::kDouble;
    case HCCL_DATA_TYPE_BFP16: return at::kBFloat16;
    default: throw std::runtime_error("soft-npu hccl: data type " + std::to_string(static_cast<int>(type)));
  }
}
size_t width(HcclDataType type) { return c10::elementSize(scalar_type(type)); }
at::Tensor over(const void* data, uint64_t count, HcclDataType type) {
  auto options = at::TensorOptions().dtype(scalar_type(type));
  return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(count)}, options);
}
std::string bytes_of(const void* data, size_t bytes) { return {static_cast<const char*>(data), bytes}; }
char* at_byte(void* data, size_t offset) { return static_cast<char*>(data) + offset; }
at::Tensor reduce(const std::vector<std::string>& all, uint64_t first, uint64_t count, HcclDataType type,
                  HcclReduceOp operation) {
  at::Tensor result;
  for (const auto& bytes : all) {
    auto part = over(bytes.data() + first * width(type), count, type);
    if (!result.defined()) {
      result = part.clone();
    } else if (operation == HCCL_REDUCE_SUM) {
      result.add_(part);
    } else if (operation == HCCL_REDUCE_PROD) {
      result.mul_(part);
    } else {
      result = operation == HCCL_REDUCE_MAX ? at::maximum(result, part) : at::minimum(result, part);
    }
  }
  return result;
}
std::vector<uint64_t> numbers(const void* values, size_t count) {
  auto begin = static_cast<const uint64_t*>(values);
  return {begin, begin + count};
}

// ---- launches
void enqueue(const char* name, Communicator& c, uint64_t bytes, int64_t peer, aclrtStream stream,
             std::function<void()> body) {
  Task task;
  task.name = name;
  task.profiled = true;
  task.run = [body] {
    c10::InferenceMode inference;
    at::RecordFunctionGuard unrecorded(false);
    body();
  };
  task.details = c.id + ";" + std::to_string(c.ranks) + ";" + std::to_string(c.rank) + ";" + std::to_string(bytes) +
                 ";" + std::to_string(peer);
  as_stream(stream)->push(std::move(task));
}
using Collective = std::function<void(Communicator&, uint64_t number)>;
HcclResult collective(const char* name, HcclComm handle, uint64_t bytes, aclrtStream stream, Collective body) {
  auto* c = as_communicator(handle);
  uint64_t number = c->collectives++;
  enqueue(name, *c, bytes, -1, stream, [=] { body(*c, number); });
  return HCCL_SUCCESS;
}
std::function<void()> sending(Communicator* c, const void* data, uint64_t bytes, uint32_t to) {
  std::lock_guard<std::mutex> lock(c->mutex);
  auto path = c->message(c->rank, to, c->sent[to]++);
  return [=] { publish(path, bytes_of(data, bytes)); };
}
std::function<void()> receiving(Communicator* c, void* data, uint64_t bytes, uint32_t from) {
  std::lock_guard<std::mutex> lock(c->mutex);
  auto path = c->message(from, c->rank, c->received[from]++);
  return [=] {
    std::string arrived = await(*c, path, from);
    if (arrived.size() != bytes) {
      throw std::runtime_error("soft-npu hccl: " + std::to_string(arrived.size()) + " bytes arrived instead of " +
                               std::to_string(bytes));
    }
    memcpy(data, arrived.data(), bytes);
    fs::remove(path);
  };
}
// Every rank publishes its parcels for all ranks, after a table of their sizes, and takes those addressed to it.
void swap_parcels(Communicator& c, uint64_t number, const std::vector<std::string>& parcels,
                  const std::function<void(uint32_t, const char*, uint64_t)>& take) {
  std::string bytes;
  for (const auto& parcel : parcels) {
    uint64_t size = parcel.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  }
  for (const auto& parcel : parcels) bytes += parcel;
  auto all = exchange(c, number, bytes);
  for (uint32_t from = 0; from < c.ranks; from++) {
    auto sizes = numbers(all[from].data(), c.ranks);
    uint64_t offset = c.ranks * sizeof(uint64_t);
    for (uint32_t to = 0; to < c.rank; to++) offset += sizes[to];
    take(from, all[from].data() + offset, sizes[c.rank]);
  }
}
}  // namespace

// ---- communicators
SOFTNPU_API HcclResult HcclGetRootInfo(HcclRootInfo* root) {
  sweep();
  memset(root, 0, sizeof *root);
  snprintf(root->internal, 64, "%d_%llx", getpid(), static_cast<unsigned long long>(now_ns()));
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* root, uint32_t rank, HcclComm* comm) {
  auto* c = new Communicator{root->internal, ranks, rank};
  std::error_code ignored;
  fs::create_directories(c->folder(), ignored);
  publish(c->process_of(rank), std::to_string(getpid()));
  *comm = c;
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo* root, uint32_t rank,
                                                  const HcclCommConfig*, HcclComm* comm) {
  return HcclCommInitRootInfo(ranks, root, rank, comm);
}
SOFTNPU_API HcclResult HcclCommInitAll(uint32_t, int32_t*, HcclComm*) {
  set_error(ACL_ERROR_API_NOT_SUPPORT,
            "soft-npu hccl: one process with several devices (HcclCommInitAll) is not built");
  return HCCL_E_NOT_SUPPORT;
}
SOFTNPU_API HcclResult HcclCommDestroy(HcclComm comm) {
  // The last rank to leave removes the folder; a slower one may still have to read the last part of this one.
  auto& c = *as_communicator(comm);
  std::error_code ignored;
  if (!fs::exists(c.folder(), ignored)) return HCCL_SUCCESS;
  std::ofstream(c.folder() / ("left_" + std::to_string(c.rank))).put('.');
  uint32_t left = 0;
  for (uint32_t r = 0; r < c.ranks; r++) {
    left += fs::exists(c.folder() / ("left_" + std::to_string(r)), ignored) || has_died(c, r);
  }
  if (left == c.ranks) fs::remove_all(c.folder(), ignored);
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult* error) {
  *error = static_cast<HcclResult>(as_communicator(comm)->error.load());
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclGetCommName(HcclComm comm, char* name) {
  snprintf(name, COMM_NAME_MAX_LENGTH, "soft_%s", as_communicator(comm)->id.c_str());
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclGetRankSize(HcclComm comm, uint32_t* ranks) {
  *ranks = as_communicator(comm)->ranks;
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclGetRankId(HcclComm comm, uint32_t* rank) {
  *rank = as_communicator(comm)->rank;
  return HCCL_SUCCESS;
}
SOFTNPU_API const char* HcclGetErrorString(HcclResult error) {
  return error == HCCL_E_REMOTE ? "a rank has died" : error == HCCL_E_TIMEOUT ? "a rank did not arrive" : "hccl error";
}
SOFTNPU_API HcclResult HcclSetConfig(HcclConfig, HcclConfigValue) { return HCCL_SUCCESS; }

// ---- collectives
SOFTNPU_API HcclResult HcclAllReduce(void* in, void* out, uint64_t count, HcclDataType type, HcclReduceOp operation,
                                     HcclComm comm, aclrtStream stream) {
  uint64_t bytes = count * width(type);
  return collective("hcom_allReduce_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    over(out, count, type).copy_(reduce(exchange(c, number, bytes_of(in, bytes)), 0, count, type, operation));
  });
}
SOFTNPU_API HcclResult HcclReduce(void* in, void* out, uint64_t count, HcclDataType type, HcclReduceOp operation,
                                  uint32_t root, HcclComm comm, aclrtStream stream) {
  uint64_t bytes = count * width(type);
  return collective("hcom_reduce_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, bytes_of(in, bytes));
    if (c.rank == root) over(out, count, type).copy_(reduce(all, 0, count, type, operation));
  });
}
SOFTNPU_API HcclResult HcclBroadcast(void* data, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                     aclrtStream stream) {
  uint64_t bytes = count * width(type);
  return collective("hcom_broadcast_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, c.rank == root ? bytes_of(data, bytes) : "");
    memcpy(data, all[root].data(), bytes);
  });
}
SOFTNPU_API HcclResult HcclScatter(void* in, void* out, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                   aclrtStream stream) {
  uint64_t bytes = count * width(type);
  return collective("hcom_scatter_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, c.rank == root ? bytes_of(in, c.ranks * bytes) : "");
    memcpy(out, all[root].data() + c.rank * bytes, bytes);
  });
}
SOFTNPU_API HcclResult HcclAllGather(void* in, void* out, uint64_t count, HcclDataType type, HcclComm comm,
                                     aclrtStream stream) {
  uint64_t bytes = count * width(type);
  return collective("hcom_allGather_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, bytes_of(in, bytes));
    for (uint32_t r = 0; r < c.ranks; r++) memcpy(at_byte(out, r * bytes), all[r].data(), bytes);
  });
}
SOFTNPU_API HcclResult HcclAllGatherV(void* in, uint64_t count, void* out, const void* counts, const void* places,
                                      HcclDataType type, HcclComm comm, aclrtStream stream) {
  uint64_t bytes = count * width(type);
  auto place = numbers(places, as_communicator(comm)->ranks);
  return collective("hcom_allGatherV_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, bytes_of(in, bytes));
    for (uint32_t r = 0; r < c.ranks; r++) memcpy(at_byte(out, place[r] * width(type)), all[r].data(), all[r].size());
  });
}
SOFTNPU_API HcclResult HcclReduceScatter(void* in, void* out, uint64_t count, HcclDataType type, HcclReduceOp operation,
                                         HcclComm comm, aclrtStream stream) {
  uint64_t bytes = as_communicator(comm)->ranks * count * width(type);
  return collective("hcom_reduceScatter_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, bytes_of(in, bytes));
    over(out, count, type).copy_(reduce(all, c.rank * count, count, type, operation));
  });
}
SOFTNPU_API HcclResult HcclReduceScatterV(void* in, const void* counts, const void* places, void* out, uint64_t count,
                                          HcclDataType type, HcclReduceOp operation, HcclComm comm,
                                          aclrtStream stream) {
  uint32_t ranks = as_communicator(comm)->ranks;
  auto place = numbers(places, ranks);
  uint64_t bytes = (place.back() + numbers(counts, ranks).back()) * width(type);
  return collective("hcom_reduceScatterV_", comm, bytes, stream, [=](Communicator& c, uint64_t number) {
    auto all = exchange(c, number, bytes_of(in, bytes));
    over(out, count, type).copy_(reduce(all, place[c.rank], count, type, operation));
  });
}
SOFTNPU_API HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  return collective("hcom_barrier_", comm, 0, stream,
                    [](Communicator& c, uint64_t number) { exchange(c, number, ""); });
}
SOFTNPU_API HcclResult HcclAlltoAll(const void* in, uint64_t in_count, HcclDataType in_type, const void* out,
                                    uint64_t out_count, HcclDataType out_type, HcclComm comm, aclrtStream stream) {
  uint64_t bytes = in_count * width(in_type), arriving = out_count * width(out_type);
  uint64_t total = bytes * as_communicator(comm)->ranks;
  return collective("hcom_alltoall_", comm, total, stream, [=](Communicator& c, uint64_t number) {
    std::vector<std::string> parcels;
    for (uint32_t r = 0; r < c.ranks; r++)
      parcels.push_back(bytes_of(at_byte(const_cast<void*>(in), r * bytes), bytes));
    swap_parcels(c, number, parcels, [&](uint32_t from, const char* data, uint64_t size) {
      memcpy(at_byte(const_cast<void*>(out), from * arriving), data, size);
    });
  });
}
SOFTNPU_API HcclResult HcclAlltoAllV(const void* in, const void* in_counts, const void* in_places, HcclDataType in_type,
                                     const void* out, const void* out_counts, const void* out_places,
                                     HcclDataType out_type, HcclComm comm, aclrtStream stream) {
  // The arrays belong to the caller, who may drop them before the stream gets here.
  uint32_t ranks = as_communicator(comm)->ranks;
  auto counts = numbers(in_counts, ranks), places = numbers(in_places, ranks);
  auto expected = numbers(out_counts, ranks), targets = numbers(out_places, ranks);
  uint64_t total = 0;
  for (auto count : counts) total += count * width(in_type);
  return collective("hcom_alltoallv_", comm, total, stream, [=](Communicator& c, uint64_t number) {
    std::vector<std::string> parcels;
    for (uint32_t r = 0; r < c.ranks; r++) {
      char* begin = at_byte(const_cast<void*>(in), places[r] * width(in_type));
      parcels.push_back(bytes_of(begin, counts[r] * width(in_type)));
    }
    swap_parcels(c, number, parcels, [&](uint32_t from, const char* data, uint64_t size) {
      if (size != expected[from] * width(out_type)) throw std::runtime_error("soft-npu hccl: counts do not match");
      memcpy(at_byte(const_cast<void*>(out), targets[from] * width(out_type)), data, size);
    });
  });
}
SOFTNPU_API HcclResult HcclAlltoAllVC(const void* in, const void* matrix, HcclDataType in_type, const void* out,
                                      HcclDataType out_type, HcclComm comm, aclrtStream stream) {
  // matrix[i * ranks + j]: how many elements rank i sends to rank j; both sides are packed without gaps.
  auto* c = as_communicator(comm);
  auto counts = numbers(matrix, static_cast<size_t>(c->ranks) * c->ranks);
  std::vector<uint64_t> leaving, leaving_at, arriving, arriving_at;
  uint64_t out_at = 0, in_at = 0;
  for (uint32_t r = 0; r < c->ranks; r++) {
    leaving.push_back(counts[c->rank * c->ranks + r]);
    arriving.push_back(counts[r * c->ranks + c->rank]);
    leaving_at.push_back(in_at);
    arriving_at.push_back(out_at);
    in_at += leaving.back();
    out_at += arriving.back();
  }
  return HcclAlltoAllV(in, leaving.data(), leaving_at.data(), in_type, out, arriving.data(), arriving_at.data(),
                       out_type, comm, stream);
}

// ---- messages between two ranks
SOFTNPU_API HcclResult HcclSend(void* data, uint64_t count, HcclDataType type, uint32_t to, HcclComm comm,
                                aclrtStream stream) {
  auto* c = as_communicator(comm);
  uint64_t bytes = count * width(type);
  enqueue("hcom_send_", *c, bytes, to, stream, sending(c, data, bytes, to));
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclRecv(void* data, uint64_t count, HcclDataType type, uint32_t from, HcclComm comm,
                                aclrtStream stream) {
  auto* c = as_communicator(comm);
  uint64_t bytes = count * width(type);
  enqueue("hcom_receive_", *c, bytes, from, stream, receiving(c, data, bytes, from));
  return HCCL_SUCCESS;
}
SOFTNPU_API HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm comm, aclrtStream stream) {
  auto* c = as_communicator(comm);
  std::vector<std::function<void()>> sends, receives;
  uint64_t total = 0;
  for (auto* item = items; item != items + count; item++) {
    uint64_t bytes = item->count * width(item->dataType);
    total += bytes;
    if (item->sendRecvType == HCCL_SEND) {
      sends.push_back(sending(c, item->buf, bytes, item->remoteRank));
    } else {
      receives.push_back(receiving(c, item->buf, bytes, item->remoteRank));
    }
  }
  // All sends first: two ranks may name each other in either order.
  enqueue("hcom_batchSendRecv_", *c, total, items->remoteRank, stream, [=] {
    for (auto& send : sends) send();
    for (auto& receive : receives) receive();
  });
  return HCCL_SUCCESS;
}
