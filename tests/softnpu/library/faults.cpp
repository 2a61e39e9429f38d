// Faults that a test or the code of one side of a comparison plants: SOFTNPU_DELAY_US and SOFTNPU_FAIL.
#include <sstream>

#include "device.h"

namespace soft {
namespace {
// A list of "name=number" or "name" in an environment variable, parsed again when its text has changed. The text is
// read at each launch, so os.environ works at any time; change it while no operator is in flight, because a C library
// may move the environment while another thread reads it.
class Switch {
 public:
  explicit Switch(const char* variable) : variable_(variable) {}

  // Returns the number of `name`, or of "*", or `otherwise`; a name without a number has 1.
  long number(const std::string& name, long otherwise) {
    const char* value = getenv(variable_);
    std::lock_guard<std::mutex> lock(mutex_);
    if (text_ != (value ? value : "")) parse(value ? value : "");
    if (numbers_.empty()) return otherwise;
    auto found = numbers_.find(name);
    if (found == numbers_.end()) found = numbers_.find("*");
    return found == numbers_.end() ? otherwise : found->second;
  }

 private:
  void parse(const char* value) {
    text_ = value;
    numbers_.clear();
    std::stringstream items(text_);
    for (std::string item; std::getline(items, item, ',');) {
      auto equals = item.find('=');
      if (!item.empty()) numbers_[item.substr(0, equals)] = equals == item.npos ? 1 : atol(item.c_str() + equals + 1);
    }
  }

  const char* variable_;
  std::mutex mutex_;
  std::string text_;
  std::map<std::string, long> numbers_;
};
}  // namespace

uint64_t planted_delay_ns(const std::string& name) {
  static auto* delays = new Switch("SOFTNPU_DELAY_US");
  return static_cast<uint64_t>(delays->number(name, 0)) * 1000;
}
bool planted_failure(const std::string& name) {
  static auto* failures = new Switch("SOFTNPU_FAIL");
  return failures->number(name, 0) != 0;
}
}  // namespace soft
