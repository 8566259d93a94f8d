#include "session.hpp"

#include <fmt/format.h>

namespace mxfa::tools {

Session::Session(const CommonFlags& flags)
    : driver_(load_driver(parse_device(flags.device_or_null()))),
      context_(flags.device_or_null(), nullptr, flags.verbose) {
  CUcontext primary = nullptr;
  driver_.check(driver_.cuDevicePrimaryCtxRetain(&primary, driver_.device), "cuDevicePrimaryCtxRetain");
  driver_.check(driver_.cuCtxPushCurrent_v2(primary), "cuCtxPushCurrent");
}

Session::~Session() {
  // The process ends soon after; what cannot be released now is released then.
  CUcontext popped = nullptr;
  (void)driver_.cuCtxPopCurrent_v2(&popped);
  (void)driver_.cuDevicePrimaryCtxRelease_v2(driver_.device);
}

void Session::synchronize() const { driver_.check(driver_.cuCtxSynchronize(), "running the kernel"); }

nlohmann::ordered_json Session::counters() const {
  const std::string text = driver_.counters();
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json::parse(text);
}

nlohmann::ordered_json Session::counters_since(const nlohmann::ordered_json& before) const {
  nlohmann::ordered_json now = counters();
  for (auto& [name, value] : now.items()) value = value.get<uint64_t>() - before[name].get<uint64_t>();
  return now;
}

DeviceBuffer::DeviceBuffer(const Session& session, std::string name, uint64_t bytes)
    : session_(session), name_(std::move(name)), bytes_(bytes) {
  const Driver& driver = session_.driver();
  const uint64_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const uint64_t total = padded + 2 * kGuardBytes + kAlignment;
  driver.check(driver.cuMemAlloc_v2(&allocation_, total),
               fmt::format("allocating {} bytes for {}", total, name_));
  address_ = (allocation_ + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  driver.check(driver.cuMemsetD8_v2(allocation_, kGuard, total), "filling guards");
  if (bytes_) driver.check(driver.cuMemsetD8_v2(address_, kPoison, bytes_), "poisoning");
}

DeviceBuffer::~DeviceBuffer() { (void)session_.driver().cuMemFree_v2(allocation_); }

void DeviceBuffer::upload_bytes(const void* from, uint64_t bytes) {
  const Driver& driver = session_.driver();
  if (bytes)
    driver.check(driver.cuMemcpyHtoD_v2(address_, from, bytes), "copying " + name_ + " to the device");
}

void DeviceBuffer::download_bytes(void* to, uint64_t bytes, uint64_t offset) const {
  const Driver& driver = session_.driver();
  if (bytes)
    driver.check(driver.cuMemcpyDtoH_v2(to, address_ + offset, bytes),
                 "copying " + name_ + " from the device");
}

std::string DeviceBuffer::damage() const {
  const Driver& driver = session_.driver();
  const CUdeviceptr after = address_ + bytes_;
  for (const CUdeviceptr start : {address_ - kGuardBytes, after}) {
    std::vector<uint8_t> guard(kGuardBytes);
    driver.check(driver.cuMemcpyDtoH_v2(guard.data(), start, guard.size()), "reading guards");
    for (size_t i = 0; i < guard.size(); ++i) {
      if (guard[i] == kGuard) continue;
      return start == after
                 ? fmt::format("a kernel wrote byte {} past the end of {}", i, name_)
                 : fmt::format("a kernel wrote {} bytes before the start of {}", kGuardBytes - i, name_);
    }
  }
  return "";
}

}  // namespace mxfa::tools
